"""One rank of a test of checkpoints; started by `torch.distributed.run` with a run file.

The disk refuses rank 1 only. Every rank writes what it saw to `<run file>.<rank>.json`.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import torch.distributed as dist

from training.config import load_run
from training.errors import TrainingError
from training.plan import open_data
from training.trainer import Trainer
from training.verify import find
from training.vocabulary import Vocabulary
from training.world import join


def main(run: Path) -> None:
    """Save, fail, go on, fail, save."""
    config = load_run(run)
    world = join("cpu", 60)
    vocabulary = Vocabulary.open(config.tokenizer)
    trainer = Trainer(config, world, vocabulary, open_data(config, vocabulary))
    seen: dict[str, object] = {}
    free = resource.getrlimit(resource.RLIMIT_FSIZE)

    def step() -> None:
        trainer.train_step(False)
        trainer.advance()

    step()
    trainer.save()
    trainer.settle()
    seen["first"] = trainer.saved
    if world.rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, free[1]))
    step()
    trainer.save()
    polls = 0
    while not (told := trainer.note(trainer.checkpoints.finished())):  # what a loop does
        step()
        polls += 1
    seen |= {"told": told, "polls": polls, "newest": find(trainer.checkpoints.folder).step}
    trainer.save()
    try:
        trainer.settle()
    except TrainingError as error:
        seen["error"] = str(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, free)
    trainer.save()
    trainer.settle()
    seen |= {"last": trainer.saved, "step": trainer.step}
    run.with_suffix(f".{world.rank}.json").write_text(json.dumps(seen))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
