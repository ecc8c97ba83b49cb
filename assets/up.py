"""`gristmill up`: the Dagster UI and the MLflow UI of a store, on loopback, until Ctrl-C."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import dagster as dg

from assets.instance import prepare_home
from assets.links import link_runs
from assets.millwork import CONFIG_VARIABLE, SETTINGS_VARIABLE, MillResource
from assets.model_display import MLFLOW_URL
from assets.model_tracking import DAGSTER_URL
from assets.partitions import RUNS, SNAPSHOTS, SOURCES, register
from pipeline.config import Config
from pipeline.errors import GristmillError, UsageError
from pipeline.mill import registered_snapshots
from pipeline.store import Store
from resources.mill import ROOT_VARIABLE
from resources.storage import open_store
from resources.tracking import TRAINING_PAGES

HOST = "127.0.0.1"
WORKSPACE = Path(__file__).resolve().parents[1] / "workspace.yaml"
PORTS_TRIED = 50
LAST_PORT = 65_535
START_SECONDS = 180
"""The first start of MLflow migrates its database: half a minute on a busy machine."""
END_SECONDS = 15
PAGES = {"MLflow": f"/#/experiments{TRAINING_PAGES}"}
"""Where a server's first page is not the one to begin with."""
TELEMETRY_OFF = {
    "DAGSTER_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "1",
}


@dataclass
class Server:
    """One web UI."""

    name: str
    url: str
    log: Path
    process: "subprocess.Popen[bytes]"


def serve(
    config: Config,
    *,
    config_file: Path | None = None,
    port: int = 3000,
    mlflow_port: int = 5000,
    say: Callable[[str], None] = print,
) -> None:
    """Start both UIs on the next free ports, say where they are, and end them with this process.

    Returns after Ctrl-C or SIGTERM. Raises UsageError where no store is named or no port is free,
    GristmillError naming the log where one of them does not start or dies.
    """
    root = config.storage.root
    if not root:
        message = "no store was named"
        raise UsageError(message, hint="give --root ROOT, or storage.root in the configuration")
    home = prepare_home(root)
    with dg.DagsterInstance.get() as instance:
        register_known(instance, config)
    dagster, mlflow = free_port(port), free_port(mlflow_port)
    environment = {
        **os.environ,
        **TELEMETRY_OFF,
        # MLflow would start seven processes for jobs that nobody submits here
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        **settings_for(config, config_file),
        DAGSTER_URL: f"http://{HOST}:{dagster}",
        MLFLOW_URL: f"http://{HOST}:{mlflow}",
    }
    run_servers(
        {
            "Dagster": (dagster, dagster_command(dagster), "/server_info"),
            "MLflow": (mlflow, mlflow_command(mlflow, root, home), "/health"),
        },
        environment,
        home,
        say,
        lambda: set_links(environment, say),
    )


def set_links(environment: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Lead from the trainings at MLflow to their runs in the Dagster UI that is up now."""
    try:
        page = link_runs(environment[MLFLOW_URL], environment[DAGSTER_URL])
        if page:
            say(f"trainings: {page}")
    except OSError as error:
        say(f"MLflow's runs do not lead to Dagster: {error}")


def settings_for(config: Config, config_file: Path | None) -> dict[str, str]:
    """How the code location finds this configuration: by file, so that edits count at once; whole,
    where options of the command line were laid on it.
    """
    assert config.storage.root is not None
    found = {ROOT_VARIABLE: config.storage.root}
    if config_file:
        found[CONFIG_VARIABLE] = str(config_file.absolute())
    resource = MillResource(root=config.storage.root, config=found.get(CONFIG_VARIABLE))
    if resource.load() != config:
        found[SETTINGS_VARIABLE] = config.model_dump_json()
    return found


def register_known(instance: dg.DagsterInstance, config: Config) -> None:
    """Partitions for what a store and its configuration hold already: made without Dagster, or not
    yet made (sources, run files).
    """
    from pipeline.stages.sources import source_names

    assert config.storage.root is not None
    store = open_store(config.storage.root, options=config.storage)
    for name in registered_snapshots(store):
        register(instance, SNAPSHOTS, name)
    for name in source_names(config.sources.location):
        register(instance, SOURCES, name)
    for name in run_names(store):
        register(instance, RUNS, name)


def run_names(store: Store) -> list[str]:
    """Names of the run files in a store."""
    keys = [info.key for info in store.list("runs/")]
    return sorted(Path(key).stem for key in keys if key.endswith(".yaml") and key.count("/") == 1)


def dagster_command(port: int) -> list[str]:
    """The Dagster UI and its daemon."""
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(WORKSPACE)]
    return [*command, "-h", HOST, "-p", str(port)]


def mlflow_command(port: int, root: str, home: Path) -> list[str]:
    """The MLflow UI over the file that runs write to; beside DAGSTER_HOME for a bucket."""
    place = home if "://" in root else Path(root).absolute()
    return [
        *(sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port)),
        *("--backend-store-uri", f"sqlite:///{place / 'mlflow.db'}"),
        *("--artifacts-destination", (place / "mlartifacts").as_uri(), "--workers", "1"),
    ]


def free_port(first: int) -> int:
    """The first port from `first` on that nobody listens on. UsageError where there is none."""
    if not 1 <= first <= LAST_PORT:
        message = f"{first} is no port: they are 1 to {LAST_PORT}"
        raise UsageError(message, hint="give another one with --port N")
    last = min(first + PORTS_TRIED - 1, LAST_PORT)
    for port in range(first, last + 1):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    message = f"no port from {first} to {last} is free on {HOST}"
    raise UsageError(message, hint="give another one with --port N")


def run_servers(
    commands: Mapping[str, tuple[int, list[str], str]],
    environment: Mapping[str, str],
    home: Path,
    say: Callable[[str], None],
    when_up: Callable[[], None] = lambda: None,
) -> None:
    """Run servers (name -> port, command, path that answers) until this process is told to end;
    `when_up` is called once all of them answer.
    """
    stopped: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.append(number)

    before = {n: signal.signal(n, stop) for n in (signal.SIGINT, signal.SIGTERM)}
    servers: list[Server] = []
    try:
        for name, (port, command, _) in commands.items():
            servers.append(start(name, port, command, environment, home))
        paths = [path for _, _, path in commands.values()]
        for server, path in zip(servers, paths, strict=True):
            if wait_for(server, path, stopped):
                say(
                    f"{server.name}: {server.url}{PAGES.get(server.name, '')}   (log: {server.log})"
                )
        if not stopped:
            when_up()
            say("Ctrl-C ends both")
        while not stopped:
            time.sleep(0.5)
            alive(servers)
    finally:
        end(servers)
        for number, handler in before.items():
            signal.signal(number, handler)


def start(
    name: str, port: int, command: list[str], environment: Mapping[str, str], home: Path
) -> Server:
    """Start one server in a session of its own, its output in a file."""
    log = home / f"{name.lower()}.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Server(name, f"http://{HOST}:{port}", log, process)


def wait_for(server: Server, path: str, stopped: list[int]) -> bool:
    """Until a server answers; False where a signal came first. GristmillError where it does not."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and not stopped:
        alive([server])
        try:
            with urllib.request.urlopen(server.url + path, timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    if stopped:
        return False
    message = f"{server.name} did not answer at {server.url} within {START_SECONDS} s"
    raise GristmillError(message, hint=f"read {server.log}")


def alive(servers: list[Server]) -> None:
    """GristmillError where a server has ended by itself, with the last line of its log."""
    for server in servers:
        code = server.process.poll()
        if code is not None:
            lines = server.log.read_text(errors="replace").strip().splitlines()
            last = lines[-1] if lines else "it said nothing"
            message = f"{server.name} ended with exit code {code}: {last}"
            raise GristmillError(message, hint=f"read {server.log}")


def end(servers: list[Server]) -> None:
    """End servers and whatever they started: asked first, after some seconds killed."""
    for server in servers:
        if server.process.poll() is None:
            server.process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + END_SECONDS
    for server in servers:
        try:
            server.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        finally:
            kill_group(server.process.pid)
            server.process.wait()


def kill_group(group: int) -> None:
    """SIGKILL to a process group, if any of it is left."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
