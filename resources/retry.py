"""Asking again: waits that double and are jittered, and a last failure that says what it was.

Synchronised clients would hit an overloaded store in waves; the random share of 50-100 % breaks
the wave and still lets every wait be at least as long as the one before it
(M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015: "equal jitter").
"""

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")
log = logging.getLogger("gristmill.retry")
_random = random.SystemRandom()


@dataclass(frozen=True)
class Retry:
    """How often and how patiently; picklable. `sleep` is there for tests."""

    attempts: int = 9
    wait_seconds: float = 0.25
    sleep: Callable[[float], None] = field(default=time.sleep, compare=False)

    def call(
        self,
        operation: Callable[[], T],
        *,
        transient: Callable[[Exception], bool],
        attempts: Callable[[Exception], int] | None = None,
    ) -> T:
        """The result of `operation`, asked again while `transient(error)`, `attempts` times.

        `attempts(error)` can give up earlier for some errors. Raises the last error.
        """
        for attempt in range(1, self.attempts + 1):
            try:
                return operation()
            except Exception as error:
                limit = self.attempts if attempts is None else min(attempts(error), self.attempts)
                if attempt >= limit or not transient(error):
                    error.add_note(f"attempt {attempt} of at most {limit}")
                    raise
                wait = self.wait(attempt)
                log.info("attempt %d failed (%s), again in %.2f s", attempt, error, wait)
            self.sleep(wait)
        raise AssertionError

    def wait(self, attempt: int) -> float:
        """Seconds to wait after failure number `attempt`: within [1/2, 1] of a doubling ceiling."""
        ceiling = self.wait_seconds * 2 ** (attempt - 1)
        return ceiling * (0.5 + 0.5 * _random.random())
