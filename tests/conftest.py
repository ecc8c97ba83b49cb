"""Fixtures that every test may use."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from resources.launcher import gpu_count

if threading.current_thread() is threading.main_thread():
    # a shell starts background jobs with SIGINT ignored, which children inherit and Dagster copies
    # to SIGTERM: tests of signals would then depend on how they were started
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real crawl data and hard cases beside the checkout; skips where they are absent."""
    if not (SHARED / "data").is_dir():
        pytest.skip(f"real data and hard cases are not beside this checkout ({SHARED.name}/)")
    return SHARED


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `gpu` skip, with the reason, where no GPU is."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not gpu_count():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))
