from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import ConfigError
from resources.attempts import Attempts, failure
from resources.command import Ended
from training.ranks.watchdog import BEAT, read_beats

FAILED = (
    "E1201 07:24:35.000000 4711 torch/distributed/elastic/multiprocessing/api.py:1003] failed "
    "(exitcode: {code}) local_rank: {local} (pid: {pid}) of binary: /usr/bin/python"
)


class Job:
    """A run's folder, the beats of its ranks, and what was told."""

    def __init__(self, folder: Path, restarts: int = 100) -> None:
        self.out, self.beats = folder / "out", folder / "beats"
        self.beats.mkdir()
        self.told: list[str] = []
        self.attempts = Attempts(self.out, self.beats, restarts, self.told.append)

    def checkpoint(self, step: int) -> None:
        (self.out / f"checkpoints/step-{step}").mkdir(parents=True)

    def end(self, code: int, step: int, *lines: str, rank: int = 1) -> str:
        """A rank's end: its beat, its lines, the agent's line; why there is no further attempt."""
        beat = BEAT.pack(rank, 100 + rank, step, 0.0, 1.0)
        (self.beats / f"rank-{rank}.beat").write_bytes(beat)
        for line in lines:
            self.attempts.hear(line)
        self.attempts.hear(FAILED.format(code=code, local=rank % 2, pid=100 + rank))
        return self.attempts.enough


def test_an_attempt_is_told_with_rank_signal_step_and_checkpoint(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.checkpoint(8)
    assert job.end(-9, 14, rank=5) == ""
    assert job.told == [
        "attempt 2 of 101 begins, because rank 5 ended with exit code -9 (SIGKILL) after step 14; "
        "newest checkpoint: step 8"
    ], "the rank is the one of the beat, not the number on its host"


def test_what_a_rank_said_is_told_too(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.end(1, 3, "[rank1]: Traceback …", "[rank1]: ValueError: no such thing")
    assert "rank 1 ended with exit code 1 after step 3: ValueError: no such thing;" in job.told[0]
    job.end(3, 7, "rank 0 hangs: no step finished for 9 s after step 7 (…); its stacks:",
            "rank 1 hangs: no step finished for 8 s after step 7 (…); its stacks:")  # fmt: skip
    assert "exit code 3 after step 7: rank 1 hangs: no step finished for 8 s" in job.told[1]


def test_two_ends_alike_without_a_checkpoint_between_are_enough(tmp_path: Path) -> None:
    job = Job(tmp_path)
    assert job.end(1, 5) == ""
    assert "2 attempts in a row ended alike" in job.end(1, 5)
    assert job.told[-1].startswith("attempt 2 of 101: rank 1 ended with exit code 1")


def test_two_unlike_ends_are_not_enough_but_three_are(tmp_path: Path) -> None:
    job = Job(tmp_path)
    assert job.end(1, 5) == ""
    assert job.end(-9, 5) == ""
    assert job.end(1, 6) == "3 attempts in a row ended without a checkpoint between them"


def test_a_checkpoint_between_is_progress(tmp_path: Path) -> None:
    job = Job(tmp_path)
    for step in range(4, 40, 4):
        job.checkpoint(step)
        assert job.end(1, 5) == ""
    assert len(job.attempts.ended) == 9


@pytest.mark.parametrize(
    "kind", ["TrainingError", "RunConfigError", "QuarantineError", "ShardError"]
)
def test_a_failure_that_the_program_names_is_enough(tmp_path: Path, kind: str) -> None:
    job = Job(tmp_path)
    assert job.end(1, 5, f"{kind}: the disk is full") == "the program named what is wrong"


def test_ranks_that_do_not_meet_may_try_again(tmp_path: Path) -> None:
    assert Job(tmp_path).end(1, 0, "LostRanksError: ranks [1] of 2 did not appear") == ""


def test_the_last_restart_is_the_agents_to_know(tmp_path: Path) -> None:
    job = Job(tmp_path, restarts=1)
    job.checkpoint(4)
    job.end(1, 5)
    job.checkpoint(8)
    assert job.end(1, 9) == ""
    assert [text.split(":")[0] for text in job.told] == [
        "attempt 2 of 2 begins, because rank 1 ended with exit code 1 after step 5; "
        "newest checkpoint",
        "attempt 2 of 2",
    ]
    error = job.attempts.failure("training of r", Ended(1, [FAILED.format(code=1, local=1, pid=7)]))
    assert error.message == "training of r failed: rank 1 ended with exit code 1 (attempt 2 of 2)"
    assert "attempt 1: rank 1 ended with exit code 1 after step 5" in str(error.hint)


@pytest.mark.parametrize(("code", "again"), [(137, True), (1, False), (0, False)])
def test_only_a_killed_agent_is_started_again(tmp_path: Path, code: int, again: bool) -> None:
    job = Job(tmp_path)
    assert job.attempts.agent_gone(Ended(code)) is again
    assert [" because the agent of torch.distributed.run ended with exit code -9 (SIGKILL);" in text
            for text in job.told] == [True] * again  # fmt: skip


def test_an_agent_that_fails_by_itself_is_named(tmp_path: Path) -> None:
    error = Job(tmp_path).attempts.failure("training of r", Ended(1, ["RendezvousClosedError: x"]))
    assert error.message == (
        "training of r failed: the agent of torch.distributed.run ended with exit code 1: "
        "RendezvousClosedError: x"
    )


def test_the_last_of_several_failures_is_the_one_that_counts() -> None:
    lines = [
        "RunConfigError: lr is 99",
        "hint: less than 1",
        FAILED.format(code=2, local=0, pid=7),
    ]
    error = failure("training of r", Ended(1, [FAILED.format(code=9, local=1, pid=3), *lines]))
    assert isinstance(error, ConfigError)
    assert error.message == "training of r failed: rank 0 ended with exit code 2: lr is 99"


def test_the_last_lines_are_those_of_the_rank_that_failed_first() -> None:
    """Without what others said, who fail because of it, and the report of the agent."""
    others = [f"[rank0]:   File {n}" for n in range(30)]
    after = ["Traceback (most recent call last):", '  File "/x/torch/distributed/run.py"']
    end = FAILED.format(code=9, local=1, pid=3)
    error = failure("training of r", Ended(1, ["fault: training.step", *others, end, *after]))
    assert error.hint == "the last lines of its log stand below\nfault: training.step"


def test_a_beat_that_is_cut_off_is_no_beat(tmp_path: Path) -> None:
    (tmp_path / "rank-0.beat").write_bytes(b"\0" * (BEAT.size - 1))
    assert read_beats(tmp_path) == []
