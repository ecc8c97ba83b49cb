"""The attempts of a training job: why each ended, whether the next one may help, and how it failed.

The agent of `torch.distributed.run` starts all ranks again after one of them is gone, and asks
nobody. What it prints and the ranks' beats (`training.ranks.watchdog`) tell why; where a new
attempt cannot help, the job is stopped: the program itself named the failure, or attempts end
without a new checkpoint between them.
"""

import itertools
import re
import signal
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import ConfigError, GristmillError
from resources.command import Ended, Say
from training.ranks.watchdog import read_beats
from training.verify import complete_steps, step_of

LAST_LINES = 20
ALIKE, WITHOUT_PROGRESS = 2, 3
"""So many attempts in a row without a new checkpoint are enough: alike, or in any way."""
FIRST_FAILURE = re.compile(
    r"Root Cause.*?rank\s*:\s*(?P<rank>\d+).*?exitcode\s*:\s*(?P<code>-?\d+)", re.DOTALL
)
ONE_FAILURE = re.compile(
    r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<rank>\d+) \(pid: (?P<pid>\d+)\)"
)
OWN_ERROR = re.compile(
    r"(?P<name>TrainingError|RunConfigError|QuarantineError|ShardError): (?P<text>.*)"
)
HANGS = re.compile(r"(?P<text>rank (?P<rank>\d+) (hangs|is stopped): .*?)(;|$)")
AGENT_NAME = "the agent of torch.distributed.run"
AGENT = "/torch/distributed/elastic/"  # in the agent's own report, which follows the ranks' lines
AGENT_LINE = re.compile(r"^[EWI]\d{4} .*torch/distributed/")


@dataclass(frozen=True)
class End:
    """How an attempt ended."""

    who: str
    code: int
    """Exit code; -n where signal n ended it."""
    step: int | None
    """The last step that a rank of this host finished; None where none told."""
    checkpoint: int
    """Step of the newest checkpoint then; 0 where there is none."""
    said: str
    """What the rank said of it, if it did."""

    def __str__(self) -> str:
        killed = f" ({signal.Signals(-self.code).name})" if self.code < 0 else ""
        at = "" if self.step is None else f" after step {self.step}"
        said = f": {self.said}" if self.said else ""
        return f"{self.who} ended with exit code {self.code}{killed}{at}{said}"


class Attempts:
    """What is known of a job's attempts; `hear` gets every line it prints."""

    def __init__(self, out: Path, beats: Path, restarts: int, tell: Say) -> None:
        self.out, self.beats, self.restarts, self.tell = out, beats, restarts, tell
        self.ended: list[End] = []
        self.enough = ""
        """Why no further attempt is made; empty while the next one may help."""
        self._lines: deque[str] = deque(maxlen=400)

    @property
    def left(self) -> int:
        """Restarts that are left."""
        return self.restarts - len(self.ended)

    def hear(self, line: str) -> None:
        """Take in a line of the job; where it tells of an attempt's end, decide."""
        self._lines.append(line)
        if match := ONE_FAILURE.search(line):
            ranks = {beat.pid: beat.rank for beat in read_beats(self.beats)}
            rank = ranks.get(int(match["pid"]), int(match["rank"]))
            self._add(f"rank {rank}", int(match["code"]), str(rank))

    def agent_gone(self, ended: Ended) -> bool:
        """Whether the agent itself was killed, and a new one is worth a try."""
        if self.enough or ended.code <= 128 or self.left <= 0:
            return False
        self._add(AGENT_NAME, _signed(ended.code), "")
        return not self.enough

    def _add(self, who: str, code: int, rank: str) -> None:
        steps = [beat.step for beat in read_beats(self.beats)]
        said = _said(self._lines, rank)[1] if rank else ""
        newest = [step_of(path) for path in complete_steps(self.out / "checkpoints")]
        end = End(who, code, max(steps, default=None), max(newest, default=0), said)
        self.ended.append(end)
        named = any(OWN_ERROR.match(line) for line in self._lines)
        self._lines.clear()
        count = len(self.ended)
        self.enough = "the program named what is wrong" if named else self._no_progress()
        if self.enough or count > self.restarts:
            self.tell(f"attempt {count} of {self.restarts + 1}: {end}")
        else:
            self.tell(
                f"attempt {count + 1} of {self.restarts + 1} begins, because {end}; "
                f"newest checkpoint: {f'step {end.checkpoint}' if end.checkpoint else 'none'}"
            )

    def _no_progress(self) -> str:
        """Why the attempts so far promise nothing of the next one."""
        last = self.ended[-1]
        same = list(
            itertools.takewhile(lambda e: e.checkpoint == last.checkpoint, reversed(self.ended))
        )
        alike = list(
            itertools.takewhile(lambda e: (e.code, e.step) == (last.code, last.step), same)
        )
        if len(alike) >= ALIKE:
            return f"{len(alike)} attempts in a row ended alike, without a checkpoint between them"
        if len(same) >= WITHOUT_PROGRESS:
            return f"{len(same)} attempts in a row ended without a checkpoint between them"
        return ""

    def failure(self, what: str, ended: Ended) -> GristmillError:
        """The error of the job, with the attempts before the last one."""
        error = failure(what, ended, alone=AGENT_NAME)
        if len(self.ended) < 2:
            return error
        why = f"; {self.enough}" if self.enough else ""
        earlier = "\n".join(f"attempt {n}: {end}" for n, end in enumerate(self.ended, 1))
        message = f"{error.message} (attempt {len(self.ended)} of {self.restarts + 1}{why})"
        return type(error)(message, hint=f"{error.hint}\n{earlier}")


def failure(what: str, ended: Ended, alone: str = "rank 0") -> GristmillError:
    """The error for a failed job: the rank that failed first, its exit code, the last lines.

    `alone`: who it was where the lines name no rank.
    """
    text = "\n".join(ended.tail)
    *_, first = [None, *ONE_FAILURE.finditer(text), *FIRST_FAILURE.finditer(text)]
    code = int(first["code"]) if first else _signed(ended.code)
    rank = first["rank"] if first else "0"
    own = [line for line in _own(ended.tail) if not AGENT_LINE.match(line)]
    kind, said, hint = _said(own, rank)
    killed = f" ({signal.Signals(-code).name})" if code < 0 else ""
    who = f"rank {first['rank']}" if first else alone
    message = f"{what} failed: {who} ended with exit code {code}{killed}"
    hint = hint or "the last lines of its log stand below"
    # others fail because of it, with tracebacks longer than what it said itself
    others = re.compile(rf"\[rank(?!{rank}\])\d+\]: ")
    last = "\n".join([line for line in own if not others.match(line)][-LAST_LINES:])
    return kind(f"{message}: {said}" if said else message, hint=f"{hint}\n{last}")


def _signed(code: int) -> int:
    """-n for a command that signal n ended."""
    return 128 - code if code > 128 else code


def _own(lines: Sequence[str]) -> list[str]:
    """The ranks' lines, up to the agent's final report."""
    ends = [n for n, line in enumerate(lines) if ONE_FAILURE.search(line)]
    if ends:
        return list(lines[: ends[-1]])
    return list(itertools.takewhile(lambda line: AGENT not in line, lines))


def _said(lines: Iterable[str], rank: str) -> tuple[type[GristmillError], str, str]:
    """(kind, sentence, hint) of the error that the job itself reported; empty where it did not."""
    lines = list(lines)
    for number, line in enumerate(lines):
        if match := OWN_ERROR.match(line):
            after = lines[number + 1] if number + 1 < len(lines) else ""
            hint = after.removeprefix("hint: ") if after.startswith("hint: ") else ""
            kind = ConfigError if match["name"] == "RunConfigError" else GristmillError
            return kind, match["text"], hint
    hangs = [match for line in lines if (match := HANGS.match(line))]
    if hangs:
        own = [match["text"] for match in hangs if match["rank"] == rank]
        return GristmillError, (own or [match["text"] for match in hangs])[-1], ""
    for before in (rf"\[rank{rank}\]: ", ""):  # before it has joined, a rank names no number
        python = re.compile(rf"{before}(?P<text>[A-Za-z_.]+(?:Error|Exception)\b.*)")
        if found := [match["text"] for line in lines if (match := python.match(line))]:
            return GristmillError, found[-1], ""
    return GristmillError, "", ""
