"""What a stage needs of an engine: one function over many parts, results in the order of the parts.

The implementations (local processes, Ray): `resources/engine.py` and `resources/ray_engine.py`.
A result may not depend on which of them ran it, nor on how many workers there were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from types import TracebackType
from typing import Protocol, TypeVar

from pipeline.errors import GristmillError

T = TypeVar("T")
R = TypeVar("R")

Progress = Callable[[int, int], None]
"""Called with (tasks done, tasks in all) after each task, in the process that called `map`."""


class Engine(Protocol):
    """Runs tasks. A context manager: workers stay warm between maps and end with it."""

    @property
    def workers(self) -> int:
        """How many tasks run at once."""
        ...

    def map(
        self, function: Callable[[T], R], tasks: Sequence[T], *, progress: Progress | None = None
    ) -> Iterator[R]:
        """`function(task)` of each task, in the order of the tasks, as they are asked for.

        The function (of an importable module) and the tasks must be picklable. Of several tasks
        that fail the first in order is reported, named by `task_name`; a worker that dies is a
        GristmillError. At most `2 * workers` results wait to be taken.
        """
        ...

    def peak_bytes(self) -> int:
        """Peak resident memory: this process's, plus each worker's."""
        ...

    def close(self) -> None:
        """End the workers."""
        ...

    def __enter__(self) -> Engine: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def task_name(task: object) -> str:
    """What a message calls a task: its `name`, itself if it is a string or path, else its repr."""
    name = getattr(task, "name", None)
    if isinstance(task, str | PurePath):
        name = str(task)
    return name if isinstance(name, str) else repr(task)[:200]


def named(error: BaseException, task: object) -> BaseException:
    """The error with the task's name: in the sentence of ours, as a note on any other."""
    name = task_name(task)
    if isinstance(error, GristmillError):
        if name in error.message:
            return error
        return type(error)(f"{name}: {error.message}", hint=error.hint)
    error.add_note(f"task: {name}")
    return error
