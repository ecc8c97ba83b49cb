"""Fixtures that every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real crawl data and hard cases beside the checkout; skips where they are absent."""
    if not (SHARED / "data").is_dir():
        pytest.skip(f"real data and hard cases are not beside this checkout ({SHARED.name}/)")
    return SHARED
