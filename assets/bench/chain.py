"""curate: WARC files to filtered text on disk, against the same chain of datatrove's blocks.

Ours is what `gristmill extract` and `gristmill filter` run: a fate and all signals of every record
beside the text. The peer is its FineWeb recipe without URL lists and deduplication. Both sides read
English with the published thresholds, and the same language model (the peer on the whole text, as
its block does). The peer's extractor works in a child process with a deadline of one second of wall
time, so what it keeps depends on the machine; it is measured with that sandbox and without.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.bench.filtering import WARM_UP as TEXT
from assets.bench.filtering import filters
from assets.bench.material import ENGLISH, Material
from assets.bench.pages import word_f1
from assets.bench.worker import Trial
from pipeline.config import Config

if TYPE_CHECKING:
    import polars as pl

MIN_SCORE = 0.65
PAGE = f"<html><head><title>Mill</title></head><body><article><p>{TEXT}</p></article></body></html>"
COLUMNS = ("url", "date", "text")
Reached = Callable[[], "pl.DataFrame"]
"""The captures (`url, date`) that came out of extraction with a text."""


def _trial(
    material: Material,
    curate: Callable[[list[Path], Path], "Reached"],
    read: Callable[[Path], "pl.DataFrame"],
) -> Trial:
    """`curate(files, folder)` on the clock; `read(folder)` gives what was kept, afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="curate-", dir=material.folder))
    files = [warc.path for warc in material.warcs]
    figures: dict[str, float] = {}

    def finding(reached: Reached) -> "pl.DataFrame":
        kept = read(folder)
        figures.update(_lost(material, reached(), len(kept)))
        shutil.rmtree(folder)
        return kept

    return Trial(
        run=lambda: curate(files, folder),
        finding=finding,
        documents=sum(warc.pages for warc in material.warcs),
        size=sum(warc.size for warc in material.warcs),
        extra=lambda: figures,
    )


def _lost(material: Material, texts: "pl.DataFrame", kept: int) -> dict[str, float]:
    """Pages of the input that have no text behind extraction, and how many documents were kept."""
    names = [warc.path.name for warc in material.warcs]
    pages = material.table("captures")
    pages = pages.filter(pages["warc_file"].is_in(names))
    lost = pages.join(texts, on=["url", "date"], how="anti")
    return {"pages": len(pages), "pages_without_text": len(lost), "kept": kept}


def english(config: Config) -> Config:
    """The configuration with the published rules and English pages only, in one process."""
    from pipeline.config.filter import FilterConfig

    rules = FilterConfig.model_validate({"language": {"keep": [ENGLISH], "min_score": MIN_SCORE}})
    engine = config.engine.model_copy(update={"kind": "local", "workers": 1})
    return config.model_copy(update={"filter": rules, "engine": engine, "accept_gate": None})


def mill_away(
    config: Config,
    files: list[Path],
    folder: Path,
    after: Callable[[str], None] = lambda stage: None,
) -> None:
    """The stages extract and filter, into two datasets in `folder`; `after` each while it lives."""
    from pipeline.dataset import Dataset
    from pipeline.inputs import dataset_input
    from pipeline.stages.crawl import extract_files
    from pipeline.stages.curation import filter_input
    from resources.mill import open_mill

    root = config.storage.model_copy(update={"root": str(folder)})
    with (mill := open_mill(config.model_copy(update={"storage": root}))).engine:
        extract_files(mill, files, mill.root.child("extracted"), "bench")
        after("extract")
        given = dataset_input(Dataset.open(mill.root.child("extracted"), accept_gate=True))
        filter_input(mill, given, mill.root.child("filtered"), None)
        after("filter")


def ours(material: Material) -> Trial:
    """The stages extract and filter, in this process and its child that reads pages."""
    import polars as pl

    from pipeline.words import tokenizer

    config = english(material.config)
    with tempfile.TemporaryDirectory(dir=material.folder) as name:
        page = Path(name) / "page.html"
        page.write_text(PAGE)
        mill_away(config, [page], Path(name) / "store")
    tokenizer().clear()

    def captures(paths: Path, *more: str) -> pl.DataFrame:
        date = pl.col("fetched_at").dt.strftime("%Y-%m-%dT%H:%M:%SZ")
        return pl.read_parquet(str(paths / "part-*.parquet")).select(
            "url", date.alias("date"), *more
        )

    def curate(files: list[Path], folder: Path) -> Reached:
        mill_away(config, files, folder)
        return lambda: captures(folder / "extracted")

    return _trial(material, curate, lambda folder: captures(folder / "filtered", "text"))


def sandboxed(material: Material) -> Trial:
    """The peer's chain as its recipe has it."""
    from datatrove.pipeline.extractors import Trafilatura

    return _peer(material, Trafilatura(favour_precision=True))


def in_process(material: Material) -> Trial:
    """The peer's chain with the same extractor in this process, without child and deadline."""
    from datatrove.pipeline.extractors import Trafilatura

    class Bare(Trafilatura):
        def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
            for document in data:
                self.stat_update("total")
                try:
                    document.text = self.extract(document.text)
                except Exception:  # as the peer does: any page that fails is skipped
                    self.stat_update("clean_error")
                    continue
                if document.text:
                    self.stat_update("forwarded")
                    yield document

    return _peer(material, Bare(favour_precision=True))


def _peer(material: Material, extractor: Any) -> Trial:
    import polars as pl
    from datatrove.utils.logging import logger
    from warcio.bufferedreaders import BufferedReader

    logger.remove()  # a line a skipped page
    # with Brotli 1.x beside it warcio 1.8.1 ends the whole run at the first br body
    BufferedReader.DECOMPRESSORS.pop("br", None)
    judge, language = filters(), peer_language()
    extractor.extract(PAGE)
    for document in _through([language, *judge], [_document(TEXT)]):
        assert document

    def curate(files: list[Path], folder: Path) -> Reached:
        from datatrove.pipeline.readers import WarcReader
        from datatrove.pipeline.writers import JsonlWriter

        listing = folder / "files.txt"
        listing.write_text("".join(f"{path.relative_to('/')}\n" for path in files))
        reader = WarcReader("/", paths_file=str(listing))
        writer = JsonlWriter(str(folder / "out"), compression=None)
        passed = _Passed()
        for _ in _through([reader, extractor, passed, language, *judge, writer], None):
            pass
        return passed.frame

    def read(folder: Path) -> pl.DataFrame:
        paths = [path for path in sorted((folder / "out").glob("*.jsonl")) if path.stat().st_size]
        if not paths:
            return pl.DataFrame(schema=dict.fromkeys(COLUMNS, pl.String))
        about = pl.col("metadata").struct
        return pl.read_ndjson(paths).select(about.field("url"), about.field("date"), "text")

    return _trial(material, curate, read)


class _Passed:
    """A step that remembers what comes by."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []

    def run(self, data: Iterable[Any], rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        for document in data:
            self.rows.append((document.metadata["url"], document.metadata["date"]))
            yield document

    def frame(self) -> "pl.DataFrame":
        import polars as pl

        return pl.DataFrame(self.rows, schema=dict.fromkeys(COLUMNS[:2], pl.String), orient="row")


def _through(steps: Iterable[Any], data: Any) -> Any:
    """What comes out of the last step, as the peer's executor chains them."""
    for step in steps:
        data = step.run(data, rank=0, world_size=1)
    return data


def _document(text: str) -> Any:
    from datatrove.data import Document

    return Document(text=text, id="warm-up")


def peer_language() -> Any:
    """The peer's language filter with the language model that is installed here.

    It asks for another distribution of the module `fasttext`, which would replace the pinned one.
    """
    from datatrove.pipeline.filters import LanguageFilter
    from fasttext.FastText import _FastText

    from pipeline.language import model_path

    LanguageFilter._requires_dependencies = []
    language = LanguageFilter(languages=[ENGLISH], language_threshold=MIN_SCORE)
    language.model._model = _FastText(str(model_path()))
    return language


def compare(ours: "pl.DataFrame", theirs: "pl.DataFrame") -> dict[str, Any]:
    """Captures kept by each and by both, and the mean F1 of words of the latter's texts."""
    keys = ["url", "date"]
    mine, peer = (frame.unique(keys, keep="first", maintain_order=True) for frame in (ours, theirs))
    both = mine.join(peer, on=keys, how="inner", suffix="_theirs", maintain_order="left")
    scores = [word_f1(a, b) for a, b in both.select("text", "text_theirs").iter_rows()]
    return {
        "kept_ours": len(ours),
        "kept_theirs": len(theirs),
        "kept_by_both": len(both),
        "share_of_theirs": round(len(both) / max(len(peer), 1), 4),
        "word_f1": round(sum(scores) / max(len(scores), 1), 4),
    }
