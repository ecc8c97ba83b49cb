"""Training from a bucket: inputs come verified, the run goes back, another machine goes on."""

import dataclasses
import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from assets.headless import materialise
from assets.trainstore import TrainStore, open_trainstore
from pipeline.config import Config, load_config
from pipeline.errors import DamagedPartError, GristmillError, UsageError
from resources.mill import open_mill
from resources.storage import open_store
from tests.s3_server import S3Server, moto_server
from tests.tcp_proxy import Proxy, proxy
from tests.training.miniature import write_run
from training.shards import read_sidecar
from training.verify import find

# Dagster's own Pipes session calls what Dagster deprecates
pytestmark = pytest.mark.filterwarnings("ignore:.*AssetExecutionContext.run_id:DeprecationWarning")


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with moto_server() as made:
        yield made


@pytest.fixture
def config(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Config]:
    """A store in a new bucket, mirrored below `tmp_path/machine`."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with server.environment():
        yield config_of(f"s3://{server.bucket()}/store", tmp_path / "machine")


def config_of(root: str, scratch: Path) -> Config:
    scratch.mkdir(parents=True, exist_ok=True)
    storage = {"root": root, "scratch": str(scratch), "part_mb": 5}
    return load_config(overrides={"storage": storage, "engine": {"workers": 1}})


def publish(config: Config, folder: Path) -> Any:
    """Put a folder into the bucket as the storage root; the store."""
    store = open_store(str(config.storage.root), options=config.storage)
    for path in folder.rglob("*"):
        if path.is_file():
            store.write(path.relative_to(folder).as_posix(), path.read_bytes())
    return store


def opened(config: Config, said: list[str] | None = None) -> TrainStore:
    return open_trainstore(open_mill(config), (said if said is not None else []).append)


def with_plan(root: Path) -> None:
    """A plan of every shard, and the run file that names it."""
    write_run(root, shards=[], plan="mixture/plan.json")
    shards = [
        {
            "path": f"shards/{path.stem}",
            "source": path.name.split("-")[0],
            "checksums": read_sidecar(path)["checksums"],
        }
        for path in sorted((root / "shards").glob("*.bin"))
    ]
    phases = [{"until_tokens": 9000, "weights": {"web": 0.5, "code": 0.5}}]
    for name in ("plan.json", "plan-1111.json"):
        (root / "mixture").mkdir(exist_ok=True)
        (root / "mixture" / name).write_text(json.dumps({"shards": shards, "phases": phases}))


def test_a_plan_brings_its_shards_verified_and_once(config: Config, tmp_path: Path) -> None:
    with_plan(tmp_path / "root")
    store = publish(config, tmp_path / "root")
    place = opened(config)
    run = place.bring("mini")
    assert place.folder.is_relative_to(tmp_path / "machine")
    assert run.plan == place.folder / "mixture/plan.json"
    files = {p.relative_to(place.folder): p for p in place.folder.rglob("*") if p.is_file()}
    wanted = {p.relative_to(tmp_path / "root") for p in (tmp_path / "root").rglob("*.*")}
    assert files.keys() == wanted, "the shards of the plan, and its version with a hash"
    before = {name: path.stat().st_mtime_ns for name, path in files.items()}
    place.bring("mini")
    assert {name: path.stat().st_mtime_ns for name, path in files.items()} == before

    bad = files[Path("shards/web-0.bin")]
    bad.write_bytes(bytes([bad.read_bytes()[0] ^ 1]) + bad.read_bytes()[1:])
    place.bring("mini")
    assert bad.read_bytes() == store.read("shards/web-0.bin"), "a damaged copy is replaced"
    bad.unlink()
    store.write("shards/web-0.bin", b"others")
    with pytest.raises(DamagedPartError, match=r"s3://.*web-0\.bin has another checksum"):
        place.bring("mini")
    assert not bad.exists()
    store.delete(["shards/web-0.bin"])
    with pytest.raises(DamagedPartError, match=r"web-0\.bin is not there any more"):
        place.bring("mini")


def test_a_folder_of_shards_is_what_it_is_in_the_bucket_now(config: Config, tmp_path: Path) -> None:
    write_run(tmp_path / "root")
    store = publish(config, tmp_path / "root")
    place = opened(config)
    place.bring("mini", shards=False)
    assert not (place.folder / "shards").exists()
    place.bring("mini")
    store.delete([f"shards/code-0.{ending}" for ending in ("bin", "idx", "json")])
    place.bring("mini")
    assert {p.name for p in (place.folder / "shards").glob("*.bin")} == {
        "web-0.bin",
        "web-held.bin",
    }


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"tokenizer": "absent.json"}, r"s3://.*/store/absent\.json is not there"),
        ({"shards": "../elsewhere"}, "no place in the store"),
    ],
)
def test_what_the_bucket_lacks_is_named(
    config: Config, tmp_path: Path, keys: dict[str, str], why: str
) -> None:
    write_run(tmp_path / "root", **keys)
    publish(config, tmp_path / "root")
    with pytest.raises(UsageError, match=why):
        opened(config).bring("mini")


def test_a_folder_needs_no_mirror_and_a_web_address_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "root")
    place = opened(config_of(str(tmp_path / "root"), tmp_path / "machine"))
    run = place.bring("mini")
    with place.sending(run):
        pass
    assert (place.folder, place.mirror) == (tmp_path / "root", None)
    assert not list((tmp_path / "machine").iterdir())
    with pytest.raises(UsageError, match="is read only"):
        opened(config_of("https://store.example/root", tmp_path / "machine"))


def train(config: Config, *select: str) -> dict[str, Any]:
    """Materialise; `result.json` as it is in the bucket then."""
    materialise(config, kind="run", partition="mini", select=select)
    store = open_store(str(config.storage.root), options=config.storage)
    return dict(json.loads(store.read("checkpoints/mini/result.json")))


@pytest.mark.slow
@pytest.mark.long
def test_another_machine_goes_on_where_one_stopped(config: Config, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"steps": 8, "checkpoint_every": 2, "keep_checkpoints": 2}
    run = write_run(tmp_path / "root", **keys, stop_after=4)
    store = publish(config, tmp_path / "root")
    with pytest.raises(GristmillError, match="was stopped at step 4 of 8"):
        train(config, "checkpoints")
    keys_there = {info.key for info in store.list("checkpoints/mini/")}
    assert {key.split("/")[3] for key in keys_there if "step-" in key} == {"step-2", "step-4"}

    content = yaml.safe_load(run.read_text())
    del content["stop_after"]
    store.write("runs/mini.yaml", yaml.safe_dump(content).encode())
    second = config_of(str(config.storage.root), tmp_path / "second")
    first = train(second, "checkpoints")
    assert (first["status"], first["resumed_from_step"], first["step"]) == ("complete", 4, 8)
    lines = store.read("checkpoints/mini/metrics.jsonl").splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 9))
    steps = {info.key.split("/")[3] for info in store.list("checkpoints/mini/checkpoints/step-")}
    assert steps == {"step-6", "step-8"}, "older ones went from the bucket too"

    for name in ("checkpoints", "runs", "shards"):  # not MLflow's database, which is open
        shutil.rmtree(opened(second).folder / name)
    again = train(second, "checkpoints")
    assert again["resumed_from_step"] == 8, "nothing was trained again"
    assert again["checkpoint"]["identity"] == first["checkpoint"]["identity"]
    with dg.DagsterInstance.get() as ui:
        event = ui.get_latest_materialization_event(dg.AssetKey("checkpoints"))
        assert event is not None
        assert event.asset_materialization is not None
        shown = event.asset_materialization.metadata
        assert shown["checkpoint"].value == f"{store.url}/checkpoints/mini/checkpoints/step-8"

    third = config_of(str(config.storage.root), tmp_path / "third")
    train(third, "evaluation", "hf_model")
    evaluation = json.loads(store.read("evaluation/mini/evaluation.json"))
    assert evaluation["identity"] == first["checkpoint"]["identity"]
    files = json.loads(store.read("hf_model/mini/gristmill.json"))["files"]
    there = {info.key.rsplit("/", 1)[1] for info in store.list("hf_model/mini/")}
    assert there == {*files, "gristmill.json"}


@pytest.mark.slow
def test_training_ends_while_the_bucket_is_gone_and_goes_up_after_it(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with proxy(int(server.endpoint_url.rpartition(":")[2])) as gate:
        through = dataclasses.replace(server, endpoint_url=f"http://127.0.0.1:{gate.port}")
        with through.environment():
            config = config_of(f"s3://{server.bucket()}/store", tmp_path / "machine")
            write_run(tmp_path / "root", steps=8, checkpoint_every=2, keep_checkpoints=2)
            store = publish(config, tmp_path / "root")
            points = opened(config).folder / "checkpoints/mini"
            outage = threading.Thread(target=gone_meanwhile, args=(gate, points), daemon=True)
            outage.start()
            result = train(config, "checkpoints")
            outage.join()
            assert (result["status"], result["step"]) == ("complete", 8)
            found = store.list("checkpoints/mini/checkpoints/step-")
            assert {info.key.split("/")[3] for info in found} == {"step-6", "step-8"}
            second = opened(config_of(str(config.storage.root), tmp_path / "second"))
            found_there = find(second.bring("mini").out / "checkpoints")
            assert (found_there.step, found_there.skipped) == (8, [])


def gone_meanwhile(gate: Proxy, points: Path) -> None:
    """Take the bucket away from the first checkpoint until two seconds after the run's end."""
    for there, change in (("checkpoints/step-2", gate.down), ("result.json", gate.up)):
        while not (points / there).exists():
            time.sleep(0.05)
        time.sleep(0 if change == gate.down else 2)
        change()


@pytest.mark.slow
def test_a_damaged_checkpoint_of_the_bucket_is_passed_over(config: Config, tmp_path: Path) -> None:
    write_run(tmp_path / "root", steps=4, checkpoint_every=2)
    store = publish(config, tmp_path / "root")
    train(config, "checkpoints")
    key = next(i.key for i in store.list("checkpoints/mini/checkpoints/step-4/__0"))
    data = store.read(key)
    store.write(key, data[:-1] + bytes([data[-1] ^ 1]))
    said: list[str] = []
    place = opened(config_of(str(config.storage.root), tmp_path / "second"), said)
    out = place.bring("mini").out
    assert [p.name for p in (out / "checkpoints").glob("step-*")] == ["step-2"]
    assert "has another checksum" in said[0]
    record = json.loads((out / "run.json").read_bytes())
    assert record["config"]["out"] == str(out), "this machine's places, not the first one's"

    store.delete([info.key for info in store.list("checkpoints/mini/")])
    assert not opened(config).bring("mini").out.exists(), "deleted in the bucket, to start anew"
