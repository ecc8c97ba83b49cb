"""Links from MLflow's runs to the Dagster UI of now: only `gristmill up` knows its address.

Runs made headlessly have none; those of an earlier `up` may name a port that is another's today.
"""

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from resources.tracking import EXPERIMENT, TRAINING_PAGES

MOST_RUNS = 1000
SECONDS = 20
NOTE = "mlflow.note.content"
OWN_NOTES = ("Asset checkpoints, partition ", "Dagster run: ")
"""How the notes begin that this project writes; one that a person wrote stays."""


def link_runs(mlflow: str, dagster: str) -> str:
    """Set `dagster.url` of every training at the server `mlflow`; the page that lists them, empty
    before the first.

    Raises OSError where the server does not answer.
    """
    name = urllib.parse.quote(EXPERIMENT)
    try:
        found = call(f"{mlflow}/api/2.0/mlflow/experiments/get-by-name?experiment_name={name}")
    except urllib.error.HTTPError as error:
        if error.code == 404:  # nothing was trained yet
            return ""
        raise
    experiment = found["experiment"]["experiment_id"]
    wanted = {
        "experiment_ids": [experiment],
        "filter": "tags.`dagster.asset` = 'checkpoints'",
        "max_results": MOST_RUNS,
    }
    runs = call(f"{mlflow}/api/2.0/mlflow/runs/search", wanted).get("runs", [])
    for run in runs:
        tags = {tag["key"]: tag["value"] for tag in run["data"].get("tags", [])}
        for key, value in changed(tags, dagster).items():
            body = {"run_id": run["info"]["run_id"], "key": key, "value": value}
            call(f"{mlflow}/api/2.0/mlflow/runs/set-tag", body)
    return f"{mlflow}/#/experiments/{experiment}/runs{TRAINING_PAGES}"


def changed(tags: dict[str, str], dagster: str) -> dict[str, str]:
    """The tags of a run that its link to Dagster changes."""
    url = f"{dagster}/runs/{tags['dagster.run_id']}"
    new = {"dagster.url": url}
    if tags.get(NOTE, OWN_NOTES[0]).startswith(OWN_NOTES):
        new[NOTE] = f"Dagster run: {url}"
    return {key: value for key, value in new.items() if tags.get(key) != value}


def call(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The JSON that the server answers."""
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        answered: dict[str, Any] = json.load(answer)
    return answered
