"""The `gristmill` command: one verb a stage, thin over `pipeline/`.

Every verb takes `--config FILE`, `--preset NAME`, `--set section.key=value`, `--workers N` and
`--json` (one JSON object on stdout, everything else on stderr). Exit code 0: done, 1: a data or
service failure, 2: wrong usage or configuration. An error is one sentence and a `hint:`.
"""

import argparse
import errno
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from pipeline.errors import GristmillError, UsageError

# nothing we ship reports to anybody
TELEMETRY_OFF = {
    "DAGSTER_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}

WHERE = {"data": "assets.commands.data", "store": "assets.commands.store"}
FUNCTIONS = {"try": "try_page", "what-if": "what_if"}  # neither can name a function
WHERE |= {"service": "assets.commands.service", "bench": "assets.commands.bench"}
WHERE |= {"classifier": "assets.commands.classifier"}
WHERE |= {"what_if": "assets.commands.what_if"}


RIGHTS = "give this user the right to it, or name another place"
SPACE = "free disk space (`gristmill prune` shows what nobody needs) or set TMPDIR, and run again"
MACHINE = {
    errno.EACCES: RIGHTS,
    errno.EPERM: RIGHTS,
    errno.EROFS: RIGHTS,
    errno.ENOSPC: SPACE,
    errno.EDQUOT: SPACE,
    errno.EFBIG: SPACE,
    errno.EMFILE: "raise the limit of open files (ulimit -n) or lower --workers",
    errno.ENAMETOOLONG: "name it shorter",
}
"""What a machine refuses, with its cure; any other such error is a bug and keeps its traceback."""


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors with a hint, like all others."""

    mixed = False
    """Whether files may follow options, as in `bench STAGE --rounds 5 IN`."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: D102
        if not self.mixed:
            return super().parse_known_args(args, namespace)
        self.mixed = False  # argparse does it by two calls of this
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self.mixed = True

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage and leaving."""
        raise UsageError(message, hint=f"see {self.prog} --help")


def local_path(text: str) -> Path:
    """A path of this machine. UsageError for an empty one and for an address."""
    if not text or "\0" in text or "://" in text:
        message = f"{text!r} is not a path on this machine"
        raise UsageError(message, hint="stages of a store at s3:// run with `gristmill run`")
    return Path(text)


def out_folder(text: str) -> Path:
    """Where a dataset goes: a folder, or nothing there yet."""
    path = local_path(text)
    for place in (path, *path.parents):
        if place.exists() or place.is_symlink():
            if place.is_dir():
                return path
            message = f"--out {path}: {place} is not a folder"
            raise UsageError(message, hint="name a folder, or one that is not there yet")
    return path


def out_file(text: str) -> Path:
    """Where one file goes: not a folder, and in a folder or in one that is not there yet."""
    path = local_path(text)
    if path.is_dir():
        message = f"--out {path} is a folder"
        raise UsageError(message, hint="name a file in it")
    out_folder(str(path.parent))
    return path


def utf8(argv: Sequence[str] | None) -> list[str]:
    """The arguments. UsageError where one holds bytes that are no UTF-8: no manifest could."""
    given = sys.argv[1:] if argv is None else list(argv)
    for argument in given:
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            message = f"the argument {argument!r} is not UTF-8"
            raise UsageError(
                message, hint="rename the file, or quote the value as UTF-8"
            ) from error
    return given


def build_parser() -> Parser:
    """The whole command line."""
    parser = Parser(prog="gristmill", description="Mills web crawls into a trained base model.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=Parser)
    common = _common()

    def verb(name: str, text: str, where: str, group: Any = verbs) -> Parser:
        made: Parser = group.add_parser(name, help=text, description=text, parents=[common])
        made.set_defaults(run=(WHERE[where], made.prog.removeprefix("gristmill ")))
        return made

    _stage_verbs(verb, verbs)
    _store_verbs(verb)
    _service_verbs(verb)
    return parser


def _common() -> Parser:
    common = Parser(add_help=False)
    shared = common.add_argument_group("common options")
    shared.add_argument("--config", type=Path, metavar="FILE", help="configuration (YAML)")
    shared.add_argument("--preset", metavar="NAME", help="start from a shipped preset")
    shared.add_argument(
        "--set",
        dest="sets",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="one setting; may be repeated",
    )
    shared.add_argument("--root", metavar="ROOT", help="the store: a folder or s3://bucket/prefix")
    shared.add_argument("--workers", type=int, metavar="N", help="parallel processes")
    shared.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return common


def _stage_verbs(verb: Any, verbs: Any) -> None:
    extract = verb("extract", "main text of WARC or HTML files", "data")
    extract.add_argument("inputs", nargs="+", metavar="WARC|HTML", type=local_path)
    extract.add_argument("--snapshot", metavar="NAME", help="default: the parent folder's name")
    for name, text in (
        ("filter", "keep documents in wanted languages that pass the rules"),
        ("scrub", "replace personal data, remove contaminated documents"),
    ):
        verb(name, text, "data").add_argument("inputs", nargs="+", metavar="IN", type=local_path)
    score = verb("score", "quality score, safety score and split", "data")
    score.add_argument("inputs", nargs="+", metavar="IN", type=local_path)
    score.add_argument("--model", type=local_path, required=True, metavar="FILE")
    score.add_argument("--safety-model", type=local_path, metavar="FILE")
    dedup = verb("dedup", "one copy of each document", "data")
    dedup.add_argument("inputs", nargs="+", metavar="IN", type=local_path)
    dedup.add_argument("--against", nargs="*", default=[], metavar="EARLIER", type=local_path)
    tokenize = verb("tokenize", "documents to token shards", "data")
    tokenize.add_argument("inputs", nargs="+", metavar="IN", type=local_path)
    tokenize.add_argument("--tokenizer", type=local_path, required=True, metavar="FILE")
    mixture = verb("mixture", "the training plan from a store's token shards", "data")
    for name in ("extract", "filter", "scrub", "score", "dedup", "tokenize"):
        verbs.choices[name].add_argument("--out", type=out_folder, required=True, metavar="DIR")
    mixture.add_argument("--out", type=out_file, required=True, metavar="FILE")
    actions = {}
    for name, text in (
        ("classifier", "label texts, train the quality classifier, fit thresholds"),
        ("tokenizer", "train the tokenizer"),
        ("extractor", "train the main-text extractor"),
    ):
        holder = verbs.add_parser(name, help=text)
        actions[name] = holder.add_subparsers(
            dest="action", required=True, metavar="ACTION", parser_class=Parser
        )
    _classifier_verbs(verb, actions["classifier"])
    for name, noun, text in (
        ("tokenizer", "IN", "train the tokenizer"),
        ("extractor", "LABELLED", "train the main-text extractor"),
    ):
        train = verb("train", text, "data", actions[name])
        train.add_argument("inputs", nargs="+", metavar=noun, type=local_path)
        train.add_argument("--out", type=out_file, required=True, metavar="FILE")
    train.add_argument(  # the extractor's
        "--predictions", type=out_file, metavar="FILE", help="texts of pages held back, as JSONL"
    )


def _classifier_verbs(verb: Any, group: Any) -> None:
    train = verb("train", "train the quality classifier", "classifier", group)
    train.add_argument("inputs", nargs="+", metavar="LABELS", type=local_path)
    train.add_argument("--quantised", type=out_file, metavar="FILE", help="a small copy to ship")
    label = verb("label", "labels of texts from a model behind an endpoint", "classifier", group)
    label.add_argument("inputs", nargs="+", metavar="IN", type=local_path)
    label.add_argument("--estimate", action="store_true", help="say the price, ask nothing")
    label.add_argument(
        "--accept-cost", action="store_true", help="go on where the estimate is over the limit"
    )
    select = verb("select", "thresholds that keep a share of each language", "classifier", group)
    select.add_argument("inputs", nargs="+", metavar="SCORED", type=local_path)
    select.add_argument("--keep", type=float, metavar="SHARE", help="default: score.select.keep")
    for made in (train, label, select):
        made.add_argument("--out", type=out_file, required=True, metavar="FILE")


def _store_verbs(verb: Any) -> None:
    run = verb(
        "run", "materialise a snapshot (or source, or run) headlessly through Dagster", "store"
    )
    which = run.add_mutually_exclusive_group(required=True)
    which.add_argument("--snapshot", metavar="S", help="all its stages up to token_shards")
    which.add_argument("--source", metavar="NAME", help="a source, up to its token_shards")
    which.add_argument("--train", metavar="NAME", help="runs/NAME.yaml: checkpoints to hf_model")
    run.add_argument("--select", metavar="ASSETS", help="only these assets, separated by commas")
    plan = verb("plan", "what would be rebuilt, and what it costs", "store")
    plan.add_argument("--snapshot", metavar="S", help="only this snapshot")
    prune = verb("prune", "parts that nothing references any more", "store")
    prune.add_argument("--apply", action="store_true", help="delete them")
    trace = verb("trace", "where a document, URL or token came from, and its fate", "store")
    what = trace.add_mutually_exclusive_group(required=True)
    what.add_argument("--url", metavar="U")
    what.add_argument("--doc", metavar="ID")
    what.add_argument("--token", metavar="SHARD:OFFSET")
    what.add_argument("--step", metavar="RUN:N", help="the documents of a step's global batch")
    trace.add_argument("--raw", action="store_true", help="the original bytes, on stdout")
    attempt = verb(
        "try", "text and every rule's value against its threshold, for one page", "store"
    )
    attempt.add_argument("page", metavar="PAGE.html|URL")
    ask = verb("what-if", "what other thresholds of the filter would keep, in seconds", "what_if")
    ask.add_argument("input", nargs="?", metavar="IN", type=local_path)
    ask.add_argument("--snapshot", metavar="S", help="only this snapshot of the store")
    ask.add_argument("--top", type=int, default=20, metavar="N", help="hosts to name")


def _service_verbs(verb: Any) -> None:
    demo = verb("demo", "the whole graph on a sample, offline", "service")
    demo.add_argument("--keep", action="store_true", help="go on with the store of an earlier demo")
    up = verb("up", "Dagster UI and MLflow UI on loopback", "service")
    up.add_argument("--port", type=int, default=3000, metavar="N", help="first port to try")
    verb("doctor", "ports, disk, cores, torch, models and store checked", "service")
    train = verb("train", "train RUN.yaml with torchrun, without Dagster", "service")
    train.add_argument("run_file", metavar="RUN.yaml", type=Path, nargs="?")
    _plan_options(train)
    train.add_argument(
        "--join", metavar="HOST:PORT", help="take part in a run that another host launched"
    )
    bench = verb("bench", "measure a stage against its peer, alternated in one run", "bench")
    bench.mixed = True
    bench.add_argument("stage", metavar="STAGE")
    bench.add_argument("inputs", nargs="*", default=[], metavar="IN", type=local_path)
    bench.add_argument("--against", metavar="PEER", help="default: the first peer of the stage")
    bench.add_argument("--input", dest="more", nargs="+", metavar="IN", type=local_path)
    bench.add_argument("--rounds", type=int, metavar="N", help="default: 3")
    bench.add_argument("--gold", metavar="FILE", type=local_path, help="extract: scores by it")
    bench.add_argument("--labels", metavar="FILE", type=local_path, help="language: accuracy by it")
    bench.add_argument("--markdown", action="store_true", help="rows for a table, with versions")


def _plan_options(train: Any) -> None:
    train.add_argument("--plan", action="store_true", help="say what it comes to, start nothing")
    plan = train.add_argument_group("with --plan")
    plan.add_argument("--recipe", metavar="NAME", help="a recipe alone, in place of RUN.yaml")
    plan.add_argument("--tokens", type=float, metavar="N", help="of the recipe, as in 15e12")
    plan.add_argument("--vocab", type=int, metavar="N", help="of the recipe; default: 128256")
    plan.add_argument("--gpus", type=int, metavar="N", help="default: as the run would start")
    plan.add_argument("--gpu", metavar="NAME", help="default: what is here; with --recipe H100")
    plan.add_argument("--gpu-memory", type=float, metavar="GIB", help="default: what is known")
    plan.add_argument("--mfu", type=float, metavar="SHARE", help="default: measured, else 0.4")
    plan.add_argument("--price", type=float, metavar="DOLLARS", help="a GPU hour; default: 3")
    plan.add_argument("--checkpoint-seconds", type=float, metavar="S", help="that one stops it")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code."""
    for name, value in TELEMETRY_OFF.items():
        os.environ.setdefault(name, value)
    try:
        arguments = build_parser().parse_args(utf8(argv))
        module, name = arguments.run
        function = getattr(import_module(module), FUNCTIONS.get(name, name.replace(" ", "_")))
        result = function(arguments)
        if arguments.json and result is not None:
            print(json.dumps(result, ensure_ascii=False), flush=True)
    except GristmillError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped; finished parts are kept and reused", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as error:
        if error.errno not in MACHINE:
            raise
        place = error.filename or "this machine"
        print(f"error: {place}: {error.strerror}\nhint: {MACHINE[error.errno]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
