"""Which process a headless run is in, and how the web UI takes it for one of its own.

A run made in this process has no code location, so the UI's timeline would leave it out, and no
launcher, so nobody would notice that it was killed. Both are added here.
"""

import contextlib
import os
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import dagster as dg
from dagster._core.remote_origin import (
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.storage.tags import REPOSITORY_LABEL_TAG
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

LOCATION, REPOSITORY = "gristmill", "__repository__"
"""The code location of `workspace.yaml`, and the name Dagster gives its only repository."""
PROCESS_TAG = "gristmill/process"


def tags() -> dict[str, str]:
    """The tags of a run in this process: its code location; host, id and start of the process."""
    process = f"{socket.gethostname()}:{os.getpid()}:{started(os.getpid())}"
    return {REPOSITORY_LABEL_TAG: f"{REPOSITORY}@{LOCATION}", PROCESS_TAG: process}


@contextlib.contextmanager
def located(instance: dg.DagsterInstance, job: str) -> Iterator[None]:
    """Runs created inside belong to the code location of `workspace.yaml`.

    `execute_in_process` has no argument for it, so the method it calls gets one more.
    """
    target = LoadableTargetOrigin(module_name="assets.definitions", attribute="defs")
    location = ManagedGrpcPythonEnvCodeLocationOrigin(target, LOCATION)
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(location, REPOSITORY), job)
    create = partial(instance.create_run_for_job, remote_job_origin=origin)
    vars(instance)["create_run_for_job"] = create
    try:
        yield
    finally:
        del vars(instance)["create_run_for_job"]


def started(pid: int) -> str:
    """When a process began, in ticks since the machine did; empty where there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def end_dead_runs(instance: dg.DagsterInstance) -> None:
    """Mark runs as failed whose process was killed: nobody else would, and they look running."""
    host = socket.gethostname()
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])):
        where, _, rest = run.tags.get(PROCESS_TAG, "").partition(":")
        pid, _, begin = rest.partition(":")
        if where == host and pid and begin != started(int(pid)):
            message = f"process {pid} ended without a word; finished parts are kept: run it again"
            instance.report_run_failed(run, message)
    free_slots(instance)


def free_slots(instance: dg.DagsterInstance) -> None:
    """Take the slots of pools from runs that have ended: a killed step gives its own never back,
    and the next one would wait for it for ever.
    """
    storage = instance.event_log_storage
    for pool in sorted(storage.get_concurrency_keys()):
        info = storage.get_concurrency_info(pool)
        for run_id in sorted(info.active_run_ids | info.pending_run_ids):
            run = instance.get_run_by_id(run_id)
            if run is None or run.is_finished:
                storage.free_concurrency_slots_for_run(run_id)
