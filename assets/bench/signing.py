"""signatures and banding: MinHash of texts, and which documents share a band.

Words and hashes differ between the libraries, so signatures are compared by what they are for:
whether a document shares a band with an earlier one. Fed the same hashes, ours and datasketch's
must be equal bit for bit, which `compare_hashes` looks at too.
"""

from typing import TYPE_CHECKING, Any

from assets.bench.material import Material
from assets.bench.worker import Trial

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from pipeline.config.dedup import DedupConfig

WARM_UP = "the mill turns slowly while the water runs over the old wheel of the mill"
CHECKED = 300
"""Documents whose hashes are also fed to datasketch, off the clock."""


def nominated(signatures: "NDArray[np.generic]", bands: int, has: Any) -> "pl.DataFrame":
    """`candidate` of each document: whether it shares a band with an earlier one."""
    import numpy as np
    import polars as pl

    rows = signatures.shape[1] // bands
    found = np.zeros(len(signatures), np.bool_)
    seen: set[bytes] = set()
    for band in range(bands):
        seen.clear()
        part = np.ascontiguousarray(signatures[:, band * rows : (band + 1) * rows])
        for number in np.flatnonzero(has).tolist():
            key = part[number].tobytes()
            found[number] |= key in seen
            seen.add(key)
    return pl.DataFrame({"candidate": found})


def ours(material: Material) -> Trial:
    """`sign_part`."""
    import polars as pl

    from pipeline.dedup.run import sign_part

    frame = material.table("documents")
    config = material.config.dedup
    sign_part(frame.head(1).with_columns(text=pl.lit(f"{WARM_UP} 水車は回る")), config)

    def finding(signed: pl.DataFrame) -> pl.DataFrame:
        values = signed["signature"].to_numpy().reshape(len(signed), -1)
        flags = nominated(values, config.bands, (signed["n_shingles"] > 0).to_numpy())
        shown = (
            signed["signature"].head(CHECKED).extend_constant(None, max(0, len(signed) - CHECKED))
        )
        return flags.with_columns(signature=shown)

    return Trial(
        run=lambda: sign_part(frame, config),
        finding=finding,
        documents=len(frame),
        size=int(frame["text"].str.len_bytes().sum()),
    )


def peer_settings(config: "DedupConfig") -> Any:
    """datatrove's MinHash configuration with our numbers."""
    from datatrove.pipeline.dedup.minhash import MinhashConfig

    return MinhashConfig(
        n_grams=config.ngram, num_buckets=config.bands, hashes_per_bucket=config.rows
    )


def peer_signer(folder: str, config: "DedupConfig") -> Any:
    """datatrove's first MinHash step; its default hash, xxh64, is handed bytes.

    datatrove 0.10.1 passes strings, which xxhash 4 refuses; older releases encoded them as is done
    here.
    """
    import xxhash
    from datatrove.pipeline.dedup.minhash import MinhashDedupSignature

    step = MinhashDedupSignature(folder, peer_settings(config))
    step._hash_func = lambda text: xxhash.xxh64_intdigest(text.encode())
    return step


def datatrove(material: Material) -> Trial:
    """The first step of the peer's MinHash, in memory."""
    import tempfile

    import numpy as np

    frame = material.table("documents")
    config = material.config.dedup
    step = peer_signer(tempfile.gettempdir(), config)
    texts: list[str] = frame["text"].to_list()

    def sign(text: str) -> list[list[int]] | None:
        shingles = step.get_shingles(text)
        return step.get_signature(shingles) if shingles.size else None

    sign(WARM_UP)

    def finding(signed: list[list[list[int]] | None]) -> "pl.DataFrame":
        values = np.zeros((len(signed), config.permutations), np.uint64)
        for row, bands in zip(values, signed, strict=True):
            if bands:
                row[:] = np.concatenate(bands)
        return nominated(values, config.bands, np.array([bool(s) for s in signed]))

    return Trial(
        run=lambda: [sign(text) for text in texts],
        finding=finding,
        documents=len(texts),
        size=int(frame["text"].str.len_bytes().sum()),
    )


def datasketch(material: Material) -> Trial:
    """`MinHash.generator` over Python shingles of lower-cased `\\w+` words, default hash."""
    import re

    import numpy as np
    from datasketch import MinHash

    frame = material.table("documents")
    config = material.config.dedup
    texts: list[str] = frame["text"].to_list()
    word = re.compile(r"\w+")

    def shingles(text: str) -> list[bytes]:
        words = word.findall(text.lower())
        spans = range(len(words) - config.ngram + 1)
        return [s.encode() for s in {" ".join(words[i : i + config.ngram]) for i in spans}]

    def sign(texts: list[str]) -> list[Any]:
        made = MinHash.generator(
            (shingles(text) for text in texts), num_perm=config.permutations, seed=config.seed
        )
        return list(made)

    sign([WARM_UP])

    def finding(signed: list[Any]) -> "pl.DataFrame":
        values = np.stack([each.hashvalues for each in signed])
        has = values.min(axis=1) < np.iinfo(values.dtype).max
        return nominated(values, config.bands, has).with_columns(
            signature=_on_our_hashes(frame["text"], config)
        )

    return Trial(
        run=lambda: sign(texts),
        finding=finding,
        documents=len(texts),
        size=int(frame["text"].str.len_bytes().sum()),
    )


def _on_our_hashes(texts: "pl.Series", config: Any) -> "pl.Series":
    """datasketch's signatures of the hashes that ours are made of, for the first documents."""
    import polars as pl
    from datasketch import MinHash

    from pipeline.dedup.shingles import shingle_hashes, word_hashes

    hashes, offsets = shingle_hashes(*word_hashes(texts.head(CHECKED)), config.ngram)
    rows: list[list[int] | None] = []
    for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        sketch = MinHash(
            num_perm=config.permutations, seed=config.seed, scheme="affine32", hashfunc=int
        )
        for value in hashes[begin:end].astype("uint32").tolist():
            sketch.update(value)
        rows.append(sketch.hashvalues.tolist())
    rows += [None] * (len(texts) - len(rows))
    return pl.Series("signature", rows, pl.Array(pl.UInt32, config.permutations))


def compare_flags(ours: "pl.DataFrame", theirs: "pl.DataFrame") -> dict[str, Any]:
    """Documents that both or neither find a candidate for."""
    mine, peer = ours["candidate"], theirs["candidate"]
    return {
        "documents": len(ours),
        "candidates_ours": int(mine.sum()),
        "candidates_theirs": int(peer.sum()),
        "candidates_equal": int((mine == peer).sum()),
    }


def compare_hashes(ours: "pl.DataFrame", theirs: "pl.DataFrame") -> dict[str, Any]:
    """The same, and signatures equal bit for bit where the same hashes went in."""
    count = min(len(ours), CHECKED)
    mine, peer = (frame["signature"].head(count).to_list() for frame in (ours, theirs))
    return compare_flags(ours, theirs) | {
        "signatures_compared": count,
        "signatures_equal": sum(a == b for a, b in zip(mine, peer, strict=True)),
    }


def _signatures(material: Material) -> tuple[Any, Any, int]:
    """Signatures, which of them are of a text with shingles, and the bytes of both."""
    signed = material.table("signed")
    values = signed["signature"].rechunk().to_numpy().reshape(len(signed), -1)
    return values, (signed["n_shingles"] > 0).to_numpy(), values.nbytes


def our_buckets(material: Material) -> Trial:
    """`buckets` over the keys of all bands."""
    import numpy as np

    from pipeline.dedup.bands import Buckets, band_keys, buckets

    config = material.config.dedup
    values, has, size = _signatures(material)

    def bucket(values: Any, has: Any) -> Buckets:
        ranks = np.flatnonzero(has).astype(np.int32)
        scope = np.zeros(len(values), np.uint64)
        keys = (band_keys(values, band, config.rows, scope)[has] for band in range(config.bands))
        return buckets(keys, ranks, len(values), 0)

    bucket(values[:2].copy(), np.ones(min(2, len(values)), np.bool_))

    def finding(found: Buckets) -> "pl.DataFrame":
        import polars as pl

        later = np.ones(len(found.members), np.bool_)
        later[found.starts[:-1]] = False
        flags = np.zeros(len(values), np.bool_)
        flags[found.members[later]] = True
        return pl.DataFrame({"candidate": flags})

    return Trial(lambda: bucket(values, has), finding, len(values), size)


def datasketch_lsh(material: Material) -> Trial:
    """`MinHashLSH`: query, then insert, in order; the sketches are made off the clock."""
    import polars as pl
    from datasketch import MinHash, MinHashLSH

    config = material.config.dedup
    values, has, size = _signatures(material)
    first = MinHash(num_perm=config.permutations, seed=config.seed, scheme="affine32")
    sketches = [
        MinHash(
            hashvalues=row, permutations=first.permutations, seed=config.seed, scheme="affine32"
        )
        if there
        else None
        for row, there in zip(values, has.tolist(), strict=True)
    ]

    def index() -> list[bool]:
        lsh = MinHashLSH(num_perm=config.permutations, params=(config.bands, config.rows))
        flags = []
        for number, sketch in enumerate(sketches):
            flags.append(bool(sketch is not None and lsh.query(sketch)))
            if sketch is not None:
                lsh.insert(number, sketch, check_duplication=False)
        return flags

    return Trial(index, lambda flags: pl.DataFrame({"candidate": flags}), len(values), size)
