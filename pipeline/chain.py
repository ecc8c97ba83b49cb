"""The manifests of one corpus, each the one that the stage behind it read.

A stage that was made again does not change what later stages were made of: they keep the hashes of
the manifests they read, and `prune` keeps those. So the way back from a token goes by these hashes;
where a stage holds something else by now, that is told beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.dataset import current_manifest, read_manifest
from pipeline.errors import ContractError
from pipeline.manifest import Entry, Manifest
from pipeline.store import Store

WEB = (
    "snapshots", "extracted_text", "filtered_text", "scored_text", "deduped_corpus",
    "scrubbed_corpus", "token_shards",
)  # fmt: skip
OTHER = ("source_texts", "token_shards")


@dataclass(frozen=True)
class Link:
    """One stage of a corpus."""

    stage: str
    store: Store
    read: Manifest
    """What the next stage read; the current manifest where there is no next stage."""
    current: Manifest

    @property
    def moved(self) -> bool:
        """Whether the stage holds another output by now than the next stage read."""
        return self.read.content.output != self.current.content.output

    def entries(
        self, kind: str, source: str | None = None, group: int | None = None, *, now: bool = False
    ) -> Iterator[Entry]:
        """Files of a kind; only those of the input file `source` and of the part group, where
        these are known. `now`: of the current manifest.
        """
        for entry in (self.current if now else self.read).content.entries(kind):
            from_file = source is None or entry.source in (source, None)
            if from_file and (group is None or entry.group in (group, None)):
                yield entry

    def both(self, kind: str, source: str | None = None) -> Iterator[Entry]:
        """Files of what the next stage read, then those that are new in the current manifest."""
        seen: set[str] = set()
        for now in (False, True) if self.moved else (False,):
            for entry in self.entries(kind, source, now=now):
                if entry.path not in seen:
                    seen.add(entry.path)
                    yield entry


def find_manifest(store: Store) -> Manifest | None:
    """The current manifest of a dataset folder; None where nothing was committed."""
    return read_manifest(store) if current_manifest(store) else None


def chain(root: Store, corpus: str, *, web: bool, last: Manifest | None = None) -> dict[str, Link]:
    """Stage -> link, in stage order, for the stages of a snapshot (`web`) or a source that are
    there. `last`: a manifest of token_shards to start from, in place of the current one.
    """
    links: list[Link] = []
    behind: Manifest | None = None
    for stage in reversed(WEB if web else OTHER):
        store = root.child(f"{stage}/{corpus}")
        current = find_manifest(store)
        if current is None:
            behind = None
            continue
        if last is not None and stage == "token_shards":
            read: Manifest | None = last
        else:
            read = _read_by(behind, stage, corpus, store, current)
        behind = read or current
        links.append(Link(stage, store, behind, current))
    return {link.stage: link for link in reversed(links)}


def _read_by(
    behind: Manifest | None, stage: str, corpus: str, store: Store, current: Manifest
) -> Manifest | None:
    """The manifest of a stage that the one behind it names; None where it names none there is."""
    inputs = behind.content.inputs if behind else ()
    names = [ref.hash for ref in inputs if (ref.asset, ref.partition) == (stage, corpus)]
    if not names or names[0] == current.hash:
        return None
    try:
        return read_manifest(store, names[0])
    except ContractError:
        return None  # removed by hand: what is there now is the best there is
