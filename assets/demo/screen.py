"""What the demo shows while it works: plain lines, and on a terminal the parts that are done."""

import sys
from typing import TextIO


class Screen:
    """Lines to a stream; on a terminal the progress of the stage at work stands below them."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self.stream = stream
        self.live = stream.isatty() and sys.stderr.isatty()
        self._ticking = False

    def say(self, line: str) -> None:
        """A line that stays."""
        self._clear()
        print(line, file=self.stream, flush=True)

    def tell(self, line: str) -> None:
        """A line below a step."""
        self.say(f"   {line}")

    def progress(self, stage: str, done: int, total: int) -> None:
        """Parts done of a stage, in place of what was said before; nothing in a file or a pipe."""
        if self.live:
            # stderr: inside a run, stdout leads there as well
            sys.stderr.write(f"\r\x1b[K   {stage}: {done} of {total} parts")
            sys.stderr.flush()
            self._ticking = True

    def _clear(self) -> None:
        if self._ticking:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._ticking = False
