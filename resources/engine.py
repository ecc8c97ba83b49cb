"""Engines by configuration, and the one of this machine: a few worker processes.

Workers are fresh interpreters (`python -m resources.worker`), not forks: Polars has threads from
its import on, and a fork of a threaded process can hang. Nor are they `multiprocessing`'s spawn,
which imports the parent's main module again (Dagster: 1 s) and reads thread limits too late. A
worker costs 0.4 s (Polars and pyarrow) once per engine. Each has one task at a time, so that a
worker that dies names the task it died on.
"""

import contextlib
import os
import pickle
import resource
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from types import TracebackType
from typing import Any, Self, TypeVar

from pipeline.config.engine import EngineConfig, cores
from pipeline.engine import Engine, Progress, named, task_name
from pipeline.errors import GristmillError

T = TypeVar("T")
R = TypeVar("R")

THREAD_LIMITS = (
    "POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS",
)  # fmt: skip

COMMAND = (sys.executable, "-X", "faulthandler", "-m", "resources.worker")


def open_engine(config: EngineConfig) -> Engine:
    """The engine that `config` names. Nothing starts before the first `map`."""
    if config.kind == "ray":
        from resources.ray_engine import RayEngine

        return RayEngine(config)
    return LocalEngine(config.n_workers, threads=config.threads)


def limits(workers: int, threads: int | None) -> dict[str, str]:
    """Environment under which `workers` processes do not use more threads than there are cores."""
    n_threads = str(threads or max(1, cores() // workers))
    return dict.fromkeys(THREAD_LIMITS, n_threads)


class _Worker:
    """One process, the pipe to it, and the index of the task it has."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.pipe, theirs = Pipe()
        self.task: int | None = None
        self.peak_bytes = 0
        with contextlib.closing(theirs):
            self.process = subprocess.Popen(
                [*COMMAND, str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,  # stdout is the caller's: `--json` writes one object there
                env=os.environ | environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
            )

    def give(self, index: int, function: Callable[[Any], Any], task: Any) -> None:
        """Hand over a task. A dead worker shows when its answer is asked for."""
        self.task = index
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send_bytes(pickle.dumps((function, task)))

    def answer(self) -> tuple[bool, Any]:
        """(worked, result or error) of its task. Raises EOFError where the process died."""
        try:
            worked, value, self.peak_bytes = pickle.loads(self.pipe.recv_bytes())
        except ConnectionResetError as error:
            raise EOFError from error
        self.task = None
        return worked, value

    def end(self, *, grace_seconds: float = 5.0) -> int:
        """Close the pipe, which ends an idle worker; kill a busy one. Its exit status."""
        busy = self.task is not None
        self.pipe.close()
        if busy:
            self.process.kill()
        try:
            return self.process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class LocalEngine:
    """`workers` processes of this machine; one worker is this process itself."""

    def __init__(self, workers: int, *, threads: int | None = None) -> None:
        self.workers = workers
        self._environment = limits(workers, threads)
        self._pool: list[_Worker] = []
        self._ended_bytes = 0
        weakref.finalize(self, _end, self._pool)  # for those who forget to close

    def map(
        self, function: Callable[[T], R], tasks: Sequence[T], *, progress: Progress | None = None
    ) -> Iterator[R]:
        """See `pipeline.engine.Engine.map`."""
        if self.workers == 1 or len(tasks) == 1:
            return _here(function, tasks, progress)
        return self._map(function, tasks, progress)

    def _map(
        self, function: Callable[[T], R], tasks: Sequence[T], progress: Progress | None
    ) -> Iterator[R]:
        answers: dict[int, tuple[bool, Any]] = {}
        given, failed = 0, False
        try:
            for turn in range(len(tasks)):
                while turn not in answers:
                    ahead = min(len(tasks), turn + 2 * self.workers)
                    while not failed and given < ahead and (worker := self._idle()):
                        worker.give(given, function, tasks[given])
                        given += 1
                    for index, answer in self._collect(tasks):
                        answers[index] = answer
                        failed |= not answer[0]
                        if progress and answer[0]:
                            progress(turn + len(answers), len(tasks))
                worked, value = answers.pop(turn)
                if not worked:
                    raise named(value, tasks[turn])
                yield value
        finally:
            self._drop([worker for worker in self._pool if worker.task is not None])

    def _idle(self) -> _Worker | None:
        """A worker without a task, started if there may be one more."""
        idle = [worker for worker in self._pool if worker.task is None]
        self._drop([worker for worker in idle if worker.process.poll() is not None])
        for worker in idle:
            if worker in self._pool:
                return worker
        if len(self._pool) < self.workers:
            self._pool.append(_Worker(self._environment))
            return self._pool[-1]
        return None

    def _collect(self, tasks: Sequence[Any]) -> Iterator[tuple[int, tuple[bool, Any]]]:
        """Wait for at least one busy worker; (task index, its answer) of all that are ready."""
        busy = {worker.pipe: worker for worker in self._pool if worker.task is not None}
        for pipe in wait(list(busy)):
            assert isinstance(pipe, Connection)
            worker = busy[pipe]
            index = worker.task
            assert index is not None
            try:
                yield index, worker.answer()
            except EOFError:
                [status] = self._drop([worker])
                yield index, (False, _died(tasks[index], status))

    def _drop(self, workers: list[_Worker]) -> list[int]:
        """End some workers; their exit statuses."""
        self._ended_bytes = max([self._ended_bytes, *(w.peak_bytes for w in workers)])
        self._pool[:] = [worker for worker in self._pool if worker not in workers]
        return [worker.end() for worker in workers]

    def peak_bytes(self) -> int:
        """Peak resident memory of this process plus that of each worker."""
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return own + max(sum(worker.peak_bytes for worker in self._pool), self._ended_bytes)

    def close(self) -> None:
        """End the workers."""
        self._drop(list(self._pool))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _end(pool: list[_Worker]) -> None:
    for worker in pool:
        worker.end()


def _here(function: Callable[[T], R], tasks: Sequence[T], progress: Progress | None) -> Iterator[R]:
    """In this process."""
    for done, task in enumerate(tasks, 1):
        try:
            result = function(task)
        except Exception as error:
            failure = named(error, task)
            if failure is error:
                raise
            raise failure from error
        if progress:
            progress(done, len(tasks))
        yield result


def _died(task: object, status: int) -> GristmillError:
    """The sentence for a worker that ended without an answer."""
    name = signal.Signals(-status).name if status < 0 else f"exit code {status}"
    message = f"{task_name(task)}: its worker process died ({name})"
    if -status == signal.SIGKILL:
        hint = "probably out of memory: fewer engine.workers, or smaller parts; then run again"
    else:
        hint = "run again with --workers 1 to see it happen in one process; finished parts are kept"
    return GristmillError(message, hint=hint)
