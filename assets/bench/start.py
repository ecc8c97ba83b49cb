"""start: seconds from nothing to the first page that is extracted and filtered, in a new process.

Kernels compile once (cold: an empty cache), later processes read them from the cache (warm).
"""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assets.bench.rounds import last_words, program
from assets.bench.summary import spread, versions
from pipeline.config import Config
from pipeline.errors import GristmillError


def measure_start(
    config: Config, folder: Path, rounds: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Wall seconds to a first page: `cold` once, `warm` over the rounds, `bare` Python with none.

    GristmillError where the process fails.
    """
    settings = folder / "config.json"
    settings.write_text(config.model_dump_json())
    cache = {"NUMBA_CACHE_DIR": str(folder / "kernels")}
    cold = _first_page(settings, cache)
    say(f"cold: {cold:.2f} s")
    warm = []
    for number in range(rounds):
        warm.append(_first_page(settings, cache))
        say(f"round {number + 1} of {rounds}, warm: {warm[-1]:.2f} s")
    return {
        "stage": "start",
        "rounds": rounds,
        "mode": config.extract.mode,
        "cold_seconds": round(cold, 3),
        "warm_seconds": spread(warm),
        "bare_seconds": round(_bare(), 3),
        "versions": versions(),
    }


def _first_page(settings: Path, cache: dict[str, str]) -> float:
    begin = time.perf_counter()
    done = program(["-m", "assets.bench.start", str(settings)], **cache)
    seconds = time.perf_counter() - begin
    if done.returncode:
        message = f"a first page failed: {last_words(done)}"
        raise GristmillError(message, hint="run `gristmill try` on a page and read its error")
    return seconds


def _bare() -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)
    return time.perf_counter() - begin


def main(settings: Path) -> None:
    """Extract and filter one page."""
    import polars as pl

    from assets.bench.chain import PAGE
    from pipeline.filters.run import filter_documents
    from pipeline.pages import extract_page

    config = Config.model_validate_json(settings.read_bytes())
    page = extract_page(PAGE, "https://mill.example/", config.extract)
    frame = pl.DataFrame({"doc_id": ["first"], "url": [None], "text": [page.text]})
    filter_documents(frame.with_columns(pl.col("url").cast(pl.String)), config.filter)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
