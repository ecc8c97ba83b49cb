"""From a step of a training run to the documents of its global batch.

What a run trained on is arithmetic on what it left behind: `run.json` (its configuration, the hash
of its data), the ledger of samples it left out, and the indices of its shards. The lines of
`metrics.jsonl` say how far it came, and its batch checksum proves the answer where the tokens are
here. Works while the run goes on; of a bucket, only indices are brought, never tokens.
"""

import contextlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipeline.config import Config
from pipeline.errors import ContractError, UsageError
from pipeline.excerpts import clean
from pipeline.shard_documents import FACTS, documents_of
from pipeline.store import Store
from training.config import NAME, PATHS, RECORD, RunConfig, recorded
from training.data import Loader
from training.errors import TrainingError
from training.plan import earlier_plan, open_data
from training.samples.course import Course
from training.shards import ShardError
from training.spikes.ledger import LEDGER, read_ledger
from training.vocabulary import Vocabulary
from training.watching.loglines import LINES, last_line, step_of, whole_lines

RUNS = "checkpoints"
DIGITS = 20
"""Python refuses to read a number of thousands of digits."""
Answer = dict[str, Any]


def documents_of_step(root: Store, config: Config, name: str, step: int) -> Answer:
    """The global batch of a step that a run has done, as JSON values.

    `run, step, loss, grad_norm, skipped, sequences, first_sample, last_sample, tokens, verified`
    (whether the checksum of the step was found again; None where the tokens are not here), and
    `documents`: a row for every segment of every sequence, with `sequence` (its sample index),
    `source` (that the mixture weighs it as), `epoch`, `shard, document, first_token, tokens` (in
    this sequence) and what `documents_of` tells. Raises UsageError for a run or a step that is not
    there, ContractError where the data of the run are not what they were.
    """
    if not NAME.fullmatch(name) or ".." in name:
        message = f"{clean(name)!r} cannot be the name of a run"
        raise UsageError(message, hint="give --step RUN:N, with the name of a file runs/RUN.yaml")
    with _run_folder(root, config, name) as (folder, out):
        run = run_of(out, folder)
        line = _line(name, step, out / LINES, run)
        if "://" in root.url:
            _bring_indices(root, folder, run)
        loader = _loader(run, recorded(out) or {}, tokens="://" not in root.url)
        indices = Course(run, read_ledger(out).left_out).indices(step)
    segments = loader.segments(indices)
    facts = documents_of(root, [(s.shard, s.document) for s in segments])
    documents = [
        {name: fact[name] for name in FACTS} | asdict(segment) | {"tokens": segment.n_tokens}
        | {"n_tokens": fact["n_tokens"]}
        for segment, fact in zip(segments, facts, strict=True)
    ]  # fmt: skip
    return {
        "run": name,
        "step": step,
        **{key: line.get(key) for key in ("loss", "grad_norm", "skipped")},
        "sequences": len(indices),
        "first_sample": indices[0],
        "last_sample": indices[-1],
        "tokens": sum(segment.n_tokens for segment in segments),
        "verified": _verified(loader, indices, line) if "://" not in root.url else None,
        "documents": documents,
    }


@contextlib.contextmanager
def _run_folder(root: Store, config: Config, name: str) -> Iterator[tuple[Path, Path]]:
    """(the root as a folder of this machine, the folder with the files of the run).

    Of a bucket the files come to a temporary folder, unless the run goes on here and is further.
    """
    if "://" not in root.url:
        yield Path(root.url), Path(root.url) / RUNS / name
        return
    from assets.trainstore import mirror_folder

    folder = mirror_folder(root.url, config.storage)
    here = folder / RUNS / name
    with tempfile.TemporaryDirectory() as scratch:
        for file in (RECORD, LEDGER, LINES):
            with contextlib.suppress(FileNotFoundError):
                Path(scratch, file).write_bytes(root.read(f"{RUNS}/{name}/{file}"))
        there = Path(scratch)
        ends = [last_line(place / LINES).get("step", 0) for place in (here, there)]
        further = ends[0] > ends[1]
        yield folder, here if further or not (there / RECORD).exists() else there


def run_of(out: Path, folder: Path) -> RunConfig:
    """The configuration a run was last started with; places below its root are those of `folder`.

    UsageError where nothing was started in `out`, or by a version with other settings.
    """
    record = recorded(out)
    if record is None:
        runs = sorted(p.parent.name for p in (folder / RUNS).glob(f"*/{RECORD}"))
        message = f"no run was started as {out.name}" if not runs else f"there is no run {out.name}"
        raise UsageError(message, hint=f"runs: {', '.join(runs) or 'none'}")
    values = dict(record["config"])
    base = Path(values["out"]).parents[1]
    for key in PATHS:
        values[key] = _moved(values.get(key), base, folder)
    values["shards"] = [_moved(path, base, folder) for path in values["shards"]]
    try:
        return RunConfig(**values)
    except ValidationError as error:
        message = f"{out / RECORD} was written by a version with other settings"
        raise UsageError(message, hint="train the run again, or use that version") from error


def _moved(path: str | None, base: Path, folder: Path) -> str | None:
    if path is None or not Path(path).is_relative_to(base):
        return path
    return str(folder / Path(path).relative_to(base))


def _line(name: str, step: int, path: Path, run: RunConfig) -> Answer:
    """What the run wrote of the step; UsageError where it has not come that far."""
    done = 0
    for text, _ in whole_lines(path):
        at = step_of(text)
        if at is None:  # half a line of a process that was killed: nothing behind it counts
            break
        if at == step:
            return dict(json.loads(text))
        done = at
    message = f"run {name} has no step {step}: {done} of {run.steps} are done and logged"
    raise UsageError(message, hint=f"give a step from 1 to {done}" if done else "wait for it")


def _bring_indices(root: Store, folder: Path, run: RunConfig) -> None:
    from assets.traininputs import RunInputs
    from resources.mirror import Mirror
    from resources.storage_s3 import S3Store

    assert isinstance(root, S3Store)
    RunInputs(Mirror(root, folder)).bring_indices(run)


def _loader(run: RunConfig, record: Answer, *, tokens: bool) -> Loader:
    """The loader of the data that the run reads, also where a newer plan took its place."""
    try:
        vocabulary = Vocabulary.open(run.tokenizer)
        found = open_data(run, vocabulary, tokens=tokens)
        told = record.get("data")
        if told is not None and told != found.checksum:
            plan = earlier_plan(run, vocabulary, told, tokens=tokens)
            if plan is None:
                message = f"the data of run {run.name} are not those that it was started with"
                hint = "its plan or a shard was removed; what it read cannot be told any more"
                raise ContractError(message, hint=hint)
            whole = run.parent_root.parent / plan
            found = open_data(run.model_copy(update={"plan": whole}), vocabulary, tokens=tokens)
    except (TrainingError, ShardError, FileNotFoundError) as error:
        message = f"the data of run {run.name} cannot be read: {str(error).splitlines()[0]}"
        raise ContractError(message, hint=getattr(error, "hint", None)) from error
    return found.loader


def _verified(loader: Loader, indices: Sequence[int], line: Answer) -> bool:
    """Whether the tokens have the checksum of the step; ContractError where it is another."""
    told = line.get("batch_checksum")
    if told is None:
        return False
    if loader.batch(indices).checksum != int(told):
        message = f"the tokens of step {line['step']} are not those that were trained on"
        hint = "a shard was replaced since; `gristmill doctor` checks the store"
        raise ContractError(message, hint=hint)
    return True


def parse_step(text: str) -> tuple[str, int]:
    """RUN:N; UsageError for anything else."""
    name, colon, number = text.rpartition(":")
    whole = number.isascii() and number.isdigit() and len(number) < DIGITS
    if not colon or not whole or int(number) < 1:
        message = f"--step {clean(text)!r} is no RUN:N"
        raise UsageError(message, hint="the name of a run, a colon, a step from 1 on")
    return name, int(number)
