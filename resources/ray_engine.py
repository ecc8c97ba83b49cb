"""The engine on Ray (extra `ray`): the same tasks, each a remote call with one core.

Tasks are given out as results are taken, at most `2 * workers` at once. Ray restarts a task whose
worker was lost (spot machines); one that keeps dying is an error that names the task.
"""

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from pipeline.config.engine import EngineConfig
from pipeline.engine import Progress, named, task_name
from pipeline.errors import ConfigError, GristmillError
from resources.engine import limits
from resources.worker import attempt, peak_bytes

T = TypeVar("T")
R = TypeVar("R")

RETRIES = 2


class RayEngine:
    """Tasks of a Ray cluster, or of one on this machine that lives as long as the engine."""

    def __init__(self, config: EngineConfig) -> None:
        self.workers = config.n_workers
        self._config = config
        self._remote: Any = None
        self._started = False
        self._peaks: list[int] = []

    def _connect(self) -> Any:
        """Ray itself, connected, with the remote function ready."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError as error:
            message = "engine.kind is 'ray' and the package ray is not installed"
            raise ConfigError(
                message, hint="pip install 'gristmill[ray]', or engine.kind: local"
            ) from error
        if not ray.is_initialized():
            local = (
                {}
                if self._config.address
                else {"num_cpus": self.workers, "include_dashboard": False}
            )
            environment = {"env_vars": limits(self.workers, self._config.threads)}
            ray.init(
                address=self._config.address,
                runtime_env=environment,
                log_to_driver=False,
                logging_level="ERROR",
                **local,
            )
            self._started = True
        if self._remote is None:
            memory = self._config.memory_gb
            self._remote = ray.remote(
                num_cpus=1,
                max_retries=RETRIES,
                memory=int(memory * 2**30) if memory else None,
            )(attempt)
        return ray

    def map(
        self, function: Callable[[T], R], tasks: Sequence[T], *, progress: Progress | None = None
    ) -> Iterator[R]:
        """See `pipeline.engine.Engine.map`."""
        ray = self._connect()
        running: dict[int, Any] = {}
        given = 0
        try:
            for turn, task in enumerate(tasks):
                while given < min(len(tasks), turn + 2 * self.workers):
                    running[given] = self._remote.remote(pickle.dumps((function, tasks[given])))
                    given += 1
                worked, value = self._take(ray, running.pop(turn), task)
                if not worked:
                    raise named(value, task)
                if progress:
                    progress(turn + 1, len(tasks))
                yield value
        finally:
            for reference in running.values():
                ray.cancel(reference, force=True)

    def _take(self, ray: Any, reference: Any, task: object) -> tuple[bool, Any]:
        """(worked, result or error) of one remote call."""
        lost = (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError)
        try:
            worked, value, peak = pickle.loads(ray.get(reference))
        except (*lost, ray.exceptions.NodeDiedError) as error:
            message = f"{task_name(task)}: its Ray worker died ({type(error).__name__})"
            hint = "probably out of memory: set engine.memory_gb, or smaller parts; then run again"
            raise GristmillError(message, hint=hint) from error
        self._peaks.append(peak)
        return worked, value

    def peak_bytes(self) -> int:
        """Peak memory of this process plus that of the `workers` largest tasks."""
        return peak_bytes() + sum(sorted(self._peaks)[-self.workers :])

    def close(self) -> None:
        """Disconnect, where this engine connected."""
        if self._started:
            import ray

            ray.shutdown()
            self._started, self._remote = False, None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
