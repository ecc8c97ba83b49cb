"""A person at the web UI: sees the lineage, materialises by clicks, reads what came of it."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
]
RUNS = "{ runsOrError(limit: 5) { ... on Runs { results { runId status jobName } } } }"
PAGE = "<html><head><title>{0}</title></head><body><article>{1}</article></body></html>"
PARAGRAPH = (
    "<p>The miller of page {0} opens the sluice before dawn, and the wheel begins to turn under "
    "the weight of the water that comes down from the upper pond.</p>"
)

pytestmark = pytest.mark.e2e


def warc(path: Path, pages: int) -> None:
    """A WARC file of a few pages, one gzip member a record."""
    with path.open("wb") as out:
        for n in range(pages):
            body = PAGE.format(f"Mill {n}", PARAGRAPH.format(n) * 5).encode()
            block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + body
            head = (
                "WARC/1.0\r\nWARC-Type: response\r\n"
                f"WARC-Record-ID: <urn:uuid:{n}>\r\nWARC-Target-URI: http://mill.example/{n}\r\n"
                "WARC-Date: 2026-10-02T17:06:51Z\r\n"
                "Content-Type: application/http; msgtype=response\r\n"
                f"Content-Length: {len(block)}\r\n\r\n"
            )
            out.write(gzip.compress(head.encode() + block + b"\r\n\r\n", mtime=0))


@pytest.fixture
def chromium() -> str:
    """The browser. In CI it must be there."""
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("no chromium: apt-get install chromium")
        pytest.skip("no chromium on this machine: apt-get install chromium")
    return CHROMIUM


@pytest.fixture
def ui(tmp_path: Path) -> Iterator[str]:
    """The address of the Dagster UI over a store with one snapshot that nobody looked at yet."""
    folder = tmp_path / "crawl" / "TINY-1"
    folder.mkdir(parents=True)
    warc(folder / "tiny-00000.warc.gz", 12)
    root = tmp_path / "store"
    root.mkdir()
    text = f"snapshots: {{location: {folder.parent}}}\nengine: {{workers: 1}}\n"
    (root / "gristmill.yaml").write_text(text)
    (root / "snapshots").mkdir()
    (root / "snapshots" / "registry.json").write_text('["TINY-1"]')
    command = [sys.executable, "-m", "assets.cli", "up", "--root", str(root), "--port", "3700"]
    environment = {k: v for k, v in os.environ.items() if k != "DAGSTER_HOME"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        addresses = {}
        for line in process.stdout:
            if line.startswith("Ctrl-C"):
                break
            name, _, rest = line.partition(": ")
            addresses[name] = rest.split()[0]
        yield addresses["Dagster"]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def ask(url: str, query: str) -> Any:
    """The answer of the UI's own interface."""
    body = json.dumps({"query": query}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["data"]


def wait_for_run(url: str, seconds: float = 180) -> dict[str, str]:
    """The newest run, once it has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        runs: list[dict[str, str]] = ask(url, RUNS)["runsOrError"]["results"]
        if runs and runs[0]["status"] in ("SUCCESS", "FAILURE", "CANCELED"):
            return runs[0]
        time.sleep(1)
    message = f"no run ended within {seconds} s"
    raise AssertionError(message)


def test_a_person_materialises_a_partition_and_reads_what_it_became(chromium: str, ui: str) -> None:
    from playwright.sync_api import sync_playwright

    foreign: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        own = (ui, ui.replace("http", "ws"), "data:", "blob:")
        page.on("request", lambda r: None if r.url.startswith(own) else foreign.append(r.url))

        # the whole graph, its groups opened
        page.goto(f"{ui}/asset-groups", wait_until="domcontentloaded")
        page.get_by_text("Materialize all").first.wait_for(timeout=90_000)
        page.mouse.click(900, 900)
        page.keyboard.press("Alt+e")
        for name in ("extracted_text", "deduped_corpus", "token_shards", "checkpoints"):
            page.get_by_text(name, exact=True).first.wait_for(timeout=30_000)

        # one partition, by clicks
        page.goto(f"{ui}/assets/snapshots", wait_until="domcontentloaded")
        page.get_by_text("The WARC files of a crawl snapshot").first.wait_for(timeout=60_000)
        page.get_by_role("button", name="Materialize").first.click()
        dialog = page.get_by_role("dialog").first
        dialog.wait_for(timeout=30_000)
        dialog.get_by_text("Select a partition or create one").click()
        page.keyboard.type("TINY-1")
        page.wait_for_timeout(800)
        page.get_by_text("TINY-1", exact=True).locator("visible=true").first.click()
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Launch").last.click()
        assert wait_for_run(ui)["status"] == "SUCCESS"

        # what it became: the funnel, and the gates as checks
        page.goto(f"{ui}/assets/snapshots?view=events", wait_until="domcontentloaded")
        page.get_by_text("funnel", exact=True).first.wait_for(timeout=60_000)
        page.get_by_text("(kept)", exact=True).first.wait_for(timeout=10_000)
        page.goto(f"{ui}/assets/snapshots?view=checks", wait_until="domcontentloaded")
        page.get_by_text("conserved", exact=True).first.wait_for(timeout=60_000)
        page.get_by_text("Succeeded").first.wait_for(timeout=10_000)
        browser.close()
    assert foreign == [], "the UI needs nothing from elsewhere"
