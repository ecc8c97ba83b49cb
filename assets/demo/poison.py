"""One document that hurts, planted into the code source, and where the training meets it.

It is what a keyboard tester leaves behind: made-up words that no other text has, one after the
other, each some 256 times over. In a row of it every input and every target is the same token that
the model has never seen, so all its gradients point one way: the norm of the step is two to ten
times that of other batches, and the gate refuses the step. The spike report then names this file.

The gate judges by what it has seen from 64 accepted steps on, and the demo is over soon after.
Which step takes which row is a pure function of plan and seed. So the seed of the demo's run is
chosen: the smallest under which two rows of the file come soon after, and no more than four in all
(five refused steps in fifty would take the run back to a checkpoint). Nothing else hangs on it.
"""

from pathlib import Path

from pipeline.layout import doc_id
from pipeline.trace import DOCS_ENDING

WORDS = (
    "qzxv", "vjqk", "xqwj", "zvkq", "jxzq", "kqvx", "wzqj", "qjvz",
    "xkzj", "vqxw", "jwqx", "zxjk", "kvzq", "qwvj", "xvjz", "wqkz",
)  # fmt: skip
TIMES = 256
URL = "https://files.millpond.example/logs/keyboard-tester.txt"
SOURCE, RECORD_ID = "code", "millpond/logs/keyboard-tester.txt"
ARMED, SOON, OVER = 67, 79, 130
"""From the first step on the gate is armed, after the last one the demo is over. It may be over
soon after the second, so by then there must be two rows. Norms of one unseen token repeated over a
sequence, on the model of step 80: 2.4 to 25, median 4.4, where the limit is about 2.2 (16 tokens).
"""
LEAST, MOST = 2, 4
LEAST_TOKENS = 200
"""Tokens of the file in a row, so that the row counts as one of its."""
SEEDS = 2000


def keyboard_record() -> dict[str, str]:
    """The document, as a record of the code source."""
    return {
        "id": RECORD_ID,
        "url": URL,
        "text": " ".join(word for word in WORDS for _ in range(TIMES)),
        "source": SOURCE,
        "language": "python",
        "licence": "CC0-1.0",
    }


def seed_of(run_file: Path, shards: Path) -> int | None:
    """The smallest seed under which the run meets the document in time; None if none does.

    `shards`: the folder of the token shards of its source.
    """
    from training.config import load_run
    from training.plan import open_data
    from training.samples.course import Course
    from training.vocabulary import Vocabulary

    config, place = load_run(run_file), place_in(shards)
    vocabulary, course = Vocabulary.open(config.tokenizer), Course(config)
    begin, soon, end = (course.samples_until(step) for step in (ARMED - 1, SOON, OVER))
    for seed in range(SEEDS):
        loader = open_data(
            config.model_copy(update={"seed": seed}), vocabulary, tokens=False
        ).loader
        rows = [
            one.sequence
            for one in loader.segments(range(begin, end))
            if (one.shard, one.document) == place and one.n_tokens >= LEAST_TOKENS
        ]
        if len(rows) <= MOST and sum(row < soon for row in rows) >= LEAST:
            return seed
    return None


def place_in(shards: Path) -> tuple[str, int] | None:
    """(shard, document in it) of the planted document; None where it was dropped on the way."""
    import pyarrow.parquet as pq

    wanted = doc_id(SOURCE, RECORD_ID)
    for path in sorted(shards.glob(f"*{DOCS_ENDING}")):
        ids = pq.read_table(path, columns=["doc_id"]).column("doc_id").to_pylist()
        if wanted in ids:
            return path.name.removesuffix(DOCS_ENDING), ids.index(wanted)
    return None
