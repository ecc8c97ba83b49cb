"""Pages are read in a child process, so that no page can take the run with it.

A parser that never returns is ended by the kernel after `extract.cpu_seconds` of CPU time (an
interval timer, so machine load decides nothing); one that crashes natively ends its own process.
Either way that page gets a reason and the next page a fresh child. The child is started once a
worker process and serves all its files; its kernels and its model are ready before the first page's
clock runs. After that the way to it costs some 0.1 ms a page.
"""

from __future__ import annotations

import atexit
import logging
import os
import resource
import signal
import subprocess
import sys
from multiprocessing.connection import Connection
from socket import socketpair

from pipeline.config.extract import ExtractConfig
from pipeline.errors import GristmillError
from pipeline.pages import Extracted, extract_page

log = logging.getLogger("gristmill.extract")
WALL_FACTOR = 20
"""A child that burns no CPU and does not answer is ended after so many times `cpu_seconds`."""
COMPILE_SECONDS = 300
"""What a child may take on top before its first answer, when it has to compile its kernels."""
LAST_SECONDS = 20
"""How long a child that closed its pipe may take to be gone, on a busy machine."""
DEATHS_IN_A_ROW = 25
"""So many pages in a row that end their process are a broken installation, not bad pages."""
Request = tuple[str, str | None, ExtractConfig]
WARMING = (
    '<meta property="og:type" content="article"><p>One sentence of main text, to begin with.</p>'
    "<ul><li>An item</ul><table><tr><td>a<td>b</table><p>10<sup>6</sup> is a number."
)


class PageWorker:
    """A child process that turns one page after the other into text."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._deaths = 0
        self._start()

    def _start(self) -> None:
        self._ready = 0  # pages answered
        ours, theirs = socketpair()
        with theirs:
            program = [sys.executable, "-m", "pipeline.page_worker", str(theirs.fileno())]
            path = os.pathsep.join(entry for entry in sys.path if entry)
            self._process = subprocess.Popen(
                program,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
            )
        self._pipe = Connection(ours.detach())

    def read(self, html: str, url: str | None, config: ExtractConfig) -> tuple[Extracted, bool]:
        """What became of the page, and whether another machine would say the same.

        A page that ends its process is `extract.hang` (out of CPU time) or `extract.crash`.
        """
        answered = True
        try:
            self._pipe.send((html, url, config))
            first = 0 if self._ready else COMPILE_SECONDS
            answered = self._pipe.poll(WALL_FACTOR * config.cpu_seconds + first)
            if answered:
                result: Extracted = self._pipe.recv()
                self._deaths, self._ready = 0, self._ready + 1
                return result, True
        except (EOFError, ConnectionError):
            pass
        return self._bury(url, config, LAST_SECONDS if answered else 0)

    def _bury(
        self, url: str | None, config: ExtractConfig, patience: float
    ) -> tuple[Extracted, bool]:
        """End the child, start another, and say why it died."""
        try:
            code = self._process.wait(patience)
        except subprocess.TimeoutExpired:
            code = None
        self.close()
        self._deaths += 1
        log.warning("the page %s ended the process that reads it (exit code %s)", url, code)
        if self._deaths >= DEATHS_IN_A_ROW:
            message = f"{self._deaths} pages in a row ended the process that reads them ({code})"
            raise GristmillError(message, hint="run `gristmill try` on one page and read its error")
        self._start()
        if code is None or code == -signal.SIGPROF:
            limit = float(config.cpu_seconds)
            return Extracted(reason="extract.hang", value=limit, threshold=limit), False
        raised = code > 0  # an exception of the extractor, printed by the child; else a signal
        return Extracted(reason="extract.crash", value=float(code)), raised

    def close(self) -> None:
        """End the child."""
        self._pipe.close()
        try:
            self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_worker: PageWorker | None = None


def page_worker() -> PageWorker:
    """This process's child, started when first asked for and ended with the process."""
    global _worker
    if _worker is None or _worker.pid != os.getpid():  # a forked copy is the parent's, not ours
        _worker = PageWorker()
        atexit.register(_worker.close)
    return _worker


def serve(pipe: Connection) -> None:
    """The child's loop: until the parent closes its end."""
    warm = set()
    while True:
        try:
            html, url, config = pipe.recv()
        except (EOFError, ConnectionError):
            return
        kind = config.mode, config.comments, config.model
        if kind not in warm:
            extract_page(WARMING, None, config)
            warm.add(kind)
        signal.setitimer(signal.ITIMER_PROF, config.cpu_seconds)
        result = extract_page(html, url, config)
        signal.setitimer(signal.ITIMER_PROF, 0)
        pipe.send(result)


def main() -> None:
    """Serve pages on the descriptor given; a signal of the terminal is the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
