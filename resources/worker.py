"""A worker process of `resources.engine.LocalEngine`: `python -m resources.worker PIPE PARENT`.

Reads (function, task) from the pipe, answers (worked, result or error, peak memory), ends with the
pipe. It also ends when its parent does, even in the middle of a task: nobody would commit it.
"""

import os
import pickle
import resource
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection

from pipeline.errors import GristmillError

PARENT_POLL_SECONDS = 0.5


def end_with_parent(parent: int) -> None:
    """Leave as soon as the process `parent` is no longer the parent.

    Not PR_SET_PDEATHSIG: that follows the thread that started the worker, not the process.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def portable(error: Exception) -> Exception:
    """The error if pickle brings it over; otherwise one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever a foreign class raises in its constructor
        return GristmillError(f"{type(error).__name__}: {error}")
    return error


def peak_bytes() -> int:
    """Peak resident memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def work(pipe: Connection) -> None:
    """Answer one task after the other until the pipe closes."""
    while True:
        try:
            message = pipe.recv_bytes()
        except EOFError:
            return
        pipe.send_bytes(attempt(message))


def attempt(message: bytes) -> bytes:
    """Pickled (True, result, peak memory) or (False, error, peak memory)."""
    try:
        function, task = pickle.loads(message)
        return pickle.dumps((True, function(task), peak_bytes()))
    except Exception as error:  # goes to the caller's process, with the trace of this one
        error.add_note("".join(traceback.format_exception(error)).rstrip())
        return pickle.dumps((False, portable(error), peak_bytes()))


def main() -> None:
    """Run until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    end_with_parent(int(sys.argv[2]))
    work(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
