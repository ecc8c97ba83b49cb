from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import page_worker
from pipeline.config.extract import ExtractConfig
from pipeline.errors import GristmillError
from pipeline.page_worker import PageWorker
from pipeline.pages import extract_page
from tests.pipeline.warcs import PAGE

CONFIG = ExtractConfig(mode="trafilatura")
BEST = ExtractConfig()

BROKEN = {
    "hang": "while True: pass",
    "native_hang": "import re; re.match('(a+)+$', 'a' * 60 + 'b')",
    "segfault": "import ctypes; ctypes.string_at(0)",
    "raises": "raise RecursionError('too deep')",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
}


@pytest.fixture
def worker() -> Iterator[PageWorker]:
    worker = PageWorker()
    yield worker
    worker.close()


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageWorker]:
    """A worker whose extractor does what the page's text says, in its own process."""
    script = tmp_path / "sitecustomize.py"
    script.write_text(
        "import trafilatura\n"
        f"broken = {BROKEN!r}\n"
        "real = trafilatura.extract\n"
        "def extract(tree, **kwargs):\n"
        "    words = (tree.text_content() or '').split()\n"
        "    if words and words[0] in broken:\n"
        "        exec(broken[words[0]])\n"
        "    return real(tree, **kwargs)\n"
        "trafilatura.extract = extract\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    worker = PageWorker()
    yield worker
    worker.close()


def page(what: str) -> str:
    return f"<html><body><p>{what} and more words.</p></body></html>"


def test_the_child_says_what_the_function_says(worker: PageWorker) -> None:
    for config in (CONFIG, BEST):
        expected = extract_page(PAGE, "http://a.example/", config)
        assert expected.extractor == ("gristmill" if config is BEST else "trafilatura")
        for _ in range(3):
            assert worker.read(PAGE, "http://a.example/", config) == (expected, True)


@pytest.mark.slow
def test_the_kernels_are_ready_before_the_clock_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiling takes longer than `cpu_seconds`; an empty cache makes the child compile."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    worker = PageWorker()
    try:
        page, same = worker.read(PAGE, None, BEST.model_copy(update={"cpu_seconds": 1}))
    finally:
        worker.close()
    assert (page.reason, same) == (None, True)


@pytest.mark.parametrize(
    ("what", "reason", "reproducible"),
    [
        ("hang", "extract.hang", False),
        ("native_hang", "extract.hang", False),
        ("segfault", "extract.crash", False),
        ("killed", "extract.crash", False),
        ("raises", "extract.crash", True),
    ],
)
def test_a_page_that_ends_its_process_costs_itself_alone(
    broken: PageWorker,
    caplog: pytest.LogCaptureFixture,
    what: str,
    reason: str,
    reproducible: bool,
) -> None:
    config = CONFIG.model_copy(update={"cpu_seconds": 2})
    result, same = broken.read(page(what), "http://a.example/", config)
    assert (result.reason, same) == (reason, reproducible)
    if reason == "extract.hang":
        assert (result.value, result.threshold) == (2.0, 2.0)
    assert broken.read(PAGE, None, config)[0].extractor == "trafilatura"
    assert "the page http://a.example/ ended the process" in caplog.text


def test_a_child_killed_between_pages_costs_that_page(worker: PageWorker) -> None:
    os.kill(worker._process.pid, signal.SIGKILL)
    assert worker.read(PAGE, None, CONFIG)[0].reason == "extract.crash"
    assert worker.read(PAGE, None, CONFIG)[0].reason is None


def test_a_broken_installation_is_an_error(
    broken: PageWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_worker, "DEATHS_IN_A_ROW", 2)
    assert broken.read(page("killed"), None, CONFIG)[0].reason == "extract.crash"
    with pytest.raises(GristmillError, match="2 pages in a row"):
        broken.read(page("killed"), None, CONFIG)


def _read_in_worker(html: str) -> tuple[str, int]:
    worker = page_worker.page_worker()
    return worker.read(html, None, CONFIG)[0].text, worker._process.pid


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_each_worker_process_has_one_child_that_ends_with_it(method: str) -> None:
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        answers = pool.map(_read_in_worker, [PAGE, PAGE])
        pool.close()
        pool.join()
    assert len(set(answers)) == 1
    pid = answers[0][1]
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists():
            break
        signal.sigtimedwait([], 0.05)
    assert not Path(f"/proc/{pid}").exists()
