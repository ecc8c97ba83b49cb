"""Quality and safety of documents: labels -> classifier -> scores -> who is kept.

labels.py         labelled texts, made ready
train.py          the fastText model of them, whole and quantised
evaluate.py       what it does on rows it did not see; folds.py: on kinds it did not see
plain_text.py     texts as classifiers read them
fasttext_file.py  model files; scores.py: scores of texts; kernels.py: the compiled passes
selection.py      thresholds that keep a share of each language
split.py          train or held out; run.py: the stage `scored_text`
"""

from __future__ import annotations

from pipeline.quality.evaluate import auc
from pipeline.quality.labels import NEGATIVE, POSITIVE, QUALITY_LABELS, SAFETY_LABELS
from pipeline.quality.plain_text import normalise
from pipeline.quality.run import STAGE, check_scores, score_documents
from pipeline.quality.scores import score_texts
from pipeline.quality.split import held_out
from pipeline.quality.train import TrainedClassifier, train_classifier

CODE_VERSION = "2"
LIBRARIES = ("polars", "numpy", "numba", "fasttext-community", "xxhash")

__all__ = [
    "CODE_VERSION",
    "LIBRARIES",
    "NEGATIVE",
    "POSITIVE",
    "QUALITY_LABELS",
    "SAFETY_LABELS",
    "STAGE",
    "TrainedClassifier",
    "auc",
    "check_scores",
    "held_out",
    "normalise",
    "score_documents",
    "score_texts",
    "train_classifier",
]
