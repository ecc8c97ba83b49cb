"""language: lid.176 on the beginning of a text, against calls of the model on all of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.bench.material import Material
from assets.bench.worker import Trial

if TYPE_CHECKING:
    import polars as pl

    from pipeline.language import Backend


def ours(material: Material) -> Trial:
    """`identify` with the configured backend, without floors: what the model says."""
    import polars as pl

    from pipeline.language import identify

    texts = material.table("documents")["text"]
    backend = material.config.filter.language.backend
    identify(pl.Series(["A line of text to begin with."]), backend=backend)
    return Trial(
        run=lambda: identify(texts, backend=backend),
        finding=lambda told: told.select("language"),
        documents=len(texts),
        size=int(texts.str.len_bytes().sum()),
    )


def fasttext(material: Material) -> Trial:
    """`predict` on the whole text, one call a document, line ends as blanks."""
    import fasttext as peer
    import polars as pl

    from pipeline.language import model_path

    series = material.table("documents")["text"]
    texts: list[str] = series.to_list()
    model = peer.load_model(str(model_path()))
    model.predict(["A line of text to begin with."])
    return Trial(
        run=lambda: [model.predict([text.replace("\n", " ")])[0][0] for text in texts],
        finding=lambda found: pl.DataFrame({"language": [_label(labels) for labels in found]}),
        documents=len(texts),
        size=int(series.str.len_bytes().sum()),
    )


def datatrove(material: Material) -> Trial:
    """The peer's `FT176LID` with the file that is installed here; it asks for all languages."""
    import polars as pl
    from datatrove.data import Document

    from assets.bench.chain import peer_language

    series = material.table("documents")["text"]
    documents = [Document(text=text, id="") for text in series]
    model = peer_language().model
    model.languages = None
    model.predict(Document(text="A line of text to begin with.", id=""))
    return Trial(
        run=lambda: [model.predict(document)[0][0] for document in documents],
        finding=lambda found: pl.DataFrame({"language": [_label([code]) for code in found]}),
        documents=len(documents),
        size=int(series.str.len_bytes().sum()),
    )


def _label(labels: Any) -> str:
    from pipeline.config.languages import UNDETERMINED
    from pipeline.language import ISO_CODES

    code = str(labels[0]).removeprefix("__label__") if len(labels) else UNDETERMINED
    return ISO_CODES.get(code, code)


def compare(ours: "pl.DataFrame", theirs: "pl.DataFrame") -> dict[str, Any]:
    """How many documents got the same language."""
    same = int((ours["language"] == theirs["language"]).sum())
    return {
        "documents": len(ours),
        "labels_equal": same,
        "share": round(same / max(len(ours), 1), 5),
    }


def accuracy(labels: Path, backend: "Backend") -> dict[str, Any]:
    """How often `identify` is right over labelled texts: by size, by length, by language."""
    from pipeline.language_accuracy import accuracy as measure
    from pipeline.language_accuracy import read_labels

    return measure(read_labels(labels), backend).as_json()
