"""Verbs of the quality classifier: label texts, train on labels, fit thresholds on scores."""

import argparse
import json
import sys
from typing import Any

from assets.commands.data import publish, report_of
from assets.commands.session import configuration, mill_for
from pipeline.errors import UsageError
from pipeline.inputs import check_input_path

Result = dict[str, Any]


def classifier_train(arguments: argparse.Namespace) -> Result:
    """`gristmill classifier train LABELS --out FILE [--quantised FILE]`."""
    config = configuration(arguments)
    for path in arguments.inputs:
        if check_input_path(path) in ("dataset", "folder"):
            message = f"labels {path} are a folder"
            raise UsageError(
                message, hint="give JSONL or Parquet files with `text, label[, split]`"
            )
    from pipeline.stages.references import train_from_files

    trained = train_from_files(config, arguments.inputs)
    publish(arguments.out, trained.model)
    if arguments.quantised:
        publish(arguments.quantised, trained.quantised)
    if not arguments.json:
        _print_kinds(trained.report)
    return report_of(dict(trained.report), arguments)


def _print_kinds(report: Result) -> None:
    """AUC of kinds that a model did not see, a line each."""
    left = report.get("leave_kinds_out")
    for row in left["one"]["kinds"] if left else []:
        side = "good" if row["good"] else "bad"
        print(f"  AUC without {row['kind']} ({side}, {row['rows']} rows): {row['auc']}")
    if left:
        one, both = left["one"], left["both"]
        print(f"one kind left out: AUC {one['auc_mean']} (by rows {one['auc_by_rows']})")
        print(f"kinds of both classes left out: AUC {both['auc_mean']} ({both['auc_pooled']})")


def classifier_label(arguments: argparse.Namespace) -> Result:
    """`gristmill classifier label IN... --out LABELS.jsonl`."""
    from resources.labeller import label_documents, read_inputs

    config = configuration(arguments)
    frame = read_inputs(arguments.inputs, config)
    labelled = label_documents(
        frame,
        config.labeller,
        say=lambda text: print(text, file=sys.stderr, flush=True),
        accept_cost=arguments.accept_cost,
        estimate_only=arguments.estimate,
    )
    if not arguments.estimate:
        publish(arguments.out, labelled.to_jsonl())
        if not arguments.json:
            for name, n in {**labelled.figures["labels"], **labelled.figures["reasons"]}.items():
                print(f"  {n:>9,}  {name}")
    return report_of(labelled.figures, arguments)


def classifier_select(arguments: argparse.Namespace) -> Result:
    """`gristmill classifier select SCORED... --out FILE [--keep SHARE]`."""
    config = configuration(arguments)
    if arguments.keep is not None:
        sets = [*arguments.sets, f"score.select.keep={arguments.keep}"]
        arguments = argparse.Namespace(**{**vars(arguments), "sets": sets})
        config = configuration(arguments)
    for path in arguments.inputs:
        if check_input_path(path) != "dataset":
            message = f"{path} is no dataset folder"
            raise UsageError(message, hint="give folders that `gristmill score` wrote")
    from pipeline.dataset import Dataset
    from pipeline.stages.selection import select_from, summary

    with mill_for(arguments, config, arguments.out.parent) as mill:
        datasets = [Dataset.open(mill.open_store(str(path))) for path in arguments.inputs]
        fitted = select_from(datasets, config.score.select)
    publish(arguments.out, fitted.to_bytes())
    if not arguments.json:
        print(json.dumps(summary(fitted)["thresholds"], indent=1))
    return report_of(summary(fitted), arguments)
