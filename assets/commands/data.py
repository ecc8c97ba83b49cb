"""Verbs of the data stages: each reads files or a dataset folder and writes a dataset folder."""

import argparse
from pathlib import Path
from typing import Any

from assets.commands.session import (
    configuration,
    mill_for,
    open_inputs,
    require_root,
    stage_result,
)
from pipeline.errors import GristmillError, UsageError
from pipeline.inputs import check_input_path
from pipeline.layout import check_name

Result = dict[str, Any]

HTML_ENDINGS = (".html", ".htm", ".xhtml")
WARC_ENDINGS = (".warc", ".warc.gz")


def _check_inputs(paths: list[Path], out: Path | None = None) -> None:
    for path in paths:
        if check_input_path(path) == "dataset" and out and path.resolve() == out.resolve():
            message = f"{path} is both input and --out"
            raise UsageError(message, hint="name another folder with --out")


def extract(arguments: argparse.Namespace) -> Result:
    """`gristmill extract WARC|HTML... --out DIR`."""
    config = configuration(arguments)
    paths = sorted(arguments.inputs, key=lambda path: path.name)
    for path in paths:
        if not path.is_file():
            message = f"{path} is not a file" if path.exists() else f"{path} is not there"
            raise UsageError(message, hint="give WARC (.warc, .warc.gz) or HTML files")
        if not path.name.lower().endswith((*HTML_ENDINGS, *WARC_ENDINGS)):
            message = f"{path} is neither a WARC nor an HTML file by its name"
            raise UsageError(message, hint=f"one of {', '.join((*WARC_ENDINGS, *HTML_ENDINGS))}")
    check_distinct(paths)
    given = arguments.snapshot
    snapshot = check_name("snapshot", _folder_name(paths) if given is None else given)
    from pipeline.stages.crawl import extract_files

    with mill_for(arguments, config, arguments.out) as mill:
        manifest = extract_files(mill, paths, mill.root, snapshot)
    return stage_result(manifest, arguments.out, arguments)


def check_distinct(paths: list[Path]) -> None:
    """Refuse two files of one base name: it is what tells their documents apart."""
    names = [path.name for path in paths]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        message = f"{twice[0]} is named {names.count(twice[0])} times"
        hint = "file names tell the documents of a snapshot apart; give each file once"
        raise UsageError(message, hint=hint)


def _folder_name(paths: list[Path]) -> str:
    names = {path.resolve().parent.name for path in paths}
    if len(names) > 1:
        message = f"the files lie in several folders: {', '.join(sorted(names))}"
        raise UsageError(message, hint="name the snapshot with --snapshot NAME")
    return names.pop()


def filter(arguments: argparse.Namespace) -> Result:
    """`gristmill filter IN... --out DIR`."""
    config = configuration(arguments)
    _check_inputs(arguments.inputs, arguments.out)
    from pipeline.stages.curation import filter_input

    with mill_for(arguments, config, arguments.out) as mill:
        given = open_inputs(mill, arguments.inputs)
        manifest = filter_input(mill, given, mill.root, None)
    return stage_result(manifest, arguments.out, arguments)


def score(arguments: argparse.Namespace) -> Result:
    """`gristmill score IN... --model FILE --out DIR`."""
    config = configuration(arguments)
    _check_inputs(arguments.inputs, arguments.out)
    from pipeline.stages.curation import score_input

    with mill_for(arguments, config, arguments.out) as mill:
        given = open_inputs(mill, arguments.inputs)
        model, safety = arguments.model, arguments.safety_model
        manifest = score_input(mill, given, mill.root, None, model, safety)
    return stage_result(manifest, arguments.out, arguments)


def dedup(arguments: argparse.Namespace) -> Result:
    """`gristmill dedup IN... --against EARLIER... --out DIR`."""
    config = configuration(arguments)
    _check_inputs([*arguments.inputs, *arguments.against], arguments.out)
    from pipeline.dataset import Dataset
    from pipeline.stages.corpus import dedup_input

    with mill_for(arguments, config, arguments.out) as mill:
        given = open_inputs(mill, arguments.inputs)
        earlier = [Dataset.open(mill.open_store(str(path))) for path in arguments.against]
        check_earlier(earlier)
        manifest = dedup_input(mill, given, earlier, mill.root, None)
    return stage_result(manifest, arguments.out, arguments)


def check_earlier(earlier: list[Any]) -> None:
    """Refuse earlier datasets without signatures: another stage made them."""
    for dataset in earlier:
        content = dataset.manifest.content
        if content.signatures is None and content.stage != "deduped_corpus":
            message = f"--against {dataset.store.url} was made by {content.stage}, not by dedup"
            raise UsageError(message, hint="name dataset folders that `gristmill dedup` wrote")


def scrub(arguments: argparse.Namespace) -> Result:
    """`gristmill scrub IN... --out DIR`."""
    config = configuration(arguments)
    _check_inputs(arguments.inputs, arguments.out)
    from pipeline.stages.curation import scrub_input

    with mill_for(arguments, config, arguments.out) as mill:
        manifest = scrub_input(mill, open_inputs(mill, arguments.inputs), mill.root, None)
    return stage_result(manifest, arguments.out, arguments)


def tokenizer_train(arguments: argparse.Namespace) -> Result:
    """`gristmill tokenizer train IN... --out FILE`."""
    config = configuration(arguments)
    _check_inputs(arguments.inputs)
    from pipeline.stages.tokens import train_on_inputs

    with mill_for(arguments, config, arguments.out.parent) as mill:
        text, report = train_on_inputs(mill, open_inputs(mill, arguments.inputs))
    publish(arguments.out, text.encode())
    return report_of(report, arguments)


def extractor_train(arguments: argparse.Namespace) -> Result:
    """`gristmill extractor train LABELLED... --out FILE [--predictions FILE]`."""
    config = configuration(arguments)
    from pipeline.extractor.labelled import find_labelled

    labelled = find_labelled(arguments.inputs)
    from pipeline.extractor import scores
    from pipeline.extractor.train import train

    trained = train(labelled.pages(config.extract.max_bytes), config.extract.comments)
    publish(arguments.out, trained.model)
    if arguments.predictions:
        publish(arguments.predictions, trained.predictions())
    if not arguments.json:
        print(scores.table(trained.scores))
    return report_of({**labelled.counts, **trained.report()}, arguments)


def tokenize(arguments: argparse.Namespace) -> Result:
    """`gristmill tokenize IN... --tokenizer FILE --out DIR`."""
    config = configuration(arguments)
    _check_inputs(arguments.inputs, arguments.out)
    if not arguments.tokenizer.is_file():
        message = f"tokenizer {arguments.tokenizer} is not there"
        raise UsageError(message, hint="gristmill tokenizer train IN... --out FILE makes one")
    from pipeline.stages.tokens import tokenize_input

    try:
        text = arguments.tokenizer.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        message = f"{arguments.tokenizer} is no tokenizer.json: it is not UTF-8"
        raise GristmillError(message, hint="`gristmill tokenizer train` writes one") from error
    with mill_for(arguments, config, arguments.out) as mill:
        given = open_inputs(mill, arguments.inputs)
        manifest = tokenize_input(mill, given, mill.root, arguments.out.resolve().name, text)
    return stage_result(manifest, arguments.out, arguments)


def mixture(arguments: argparse.Namespace) -> Result:
    """`gristmill mixture --root R --out FILE`."""
    import json

    config = configuration(arguments)
    root = require_root(config, there=True)
    from pipeline.stages.mixture import mixture as make_plan
    from pipeline.stages.mixture import read_plan

    with mill_for(arguments, config, root) as mill:
        plan = read_plan(mill, make_plan(mill))
    publish(arguments.out, (json.dumps(plan, indent=1, ensure_ascii=False) + "\n").encode())
    return report_of(plan, arguments)


def publish(path: Path, data: bytes) -> None:
    """Publish one file whole, or say why not."""
    from resources.storage_local import LocalStore

    place = path.absolute()
    LocalStore(place.parent).write(place.name, data)


def report_of(report: Result, arguments: argparse.Namespace) -> Result:
    """The JSON of a verb that makes one file; for people, its plain figures on stdout."""
    result = {**report, "out": str(arguments.out)}
    if not arguments.json:
        for key, value in result.items():
            if isinstance(value, str | int | float):
                print(f"{key}: {value}")
    return result
