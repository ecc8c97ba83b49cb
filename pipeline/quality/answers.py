"""What a larger model is asked about a text, and how its answers are read.

Answers are read strictly: a digit 0 to 5 (or yes or no) and nothing more, bare or behind `Score:`.
A chatty answer that merely holds a digit somewhere is no answer; it is counted and asked again.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.config.labeller import LabellerConfig

PLACE = "{text}"
DEFAULT = """\
Below is an extract from a web page. How useful is it for teaching, from primary school to the first
years of university? Count one point for each that holds, independently of the topic:
1. It gives some correct information about a subject, even among advertising or other matter.
2. It treats a subject of education, though not in order or in depth.
3. It explains ideas clearly enough to be used in teaching.
4. It is like a chapter of a textbook or a tutorial: coherent, in order, with little else.
5. It is outstanding for teaching: detailed, easy to follow, free of anything off the subject.

Extract:
\"\"\"
{text}
\"\"\"

Answer with the number of points, one digit from 0 to 5, and nothing else."""
"""The additive scale of FineWeb-Edu (arXiv:2406.17557, appendix F), in our words."""

MANY = """
The extract holds {n} numbered texts. Answer for each of them, one line a text: its number, a colon,
the answer. Write nothing else."""

GRADE = r"(?:(?:educational )?(?:score|grade|points)\s*[:=]\s*)?([0-5])(?:\s*/\s*5)?\.?"
ANSWERS = {"grade": re.compile(GRADE), "yes_no": re.compile(r"(?:answer\s*:\s*)?(yes|no)\.?")}
NUMBERED = re.compile(r"(?:text\s*)?(\d{1,3})\s*[:.)]\s*(.+)", re.IGNORECASE)
YES_NO = {"yes": "1", "no": "0"}


def read_prompt(config: LabellerConfig) -> str:
    """The question, with `{text}` in it. ConfigError where the file has no such place."""
    if config.prompt is None:
        return DEFAULT
    try:
        prompt = Path(config.prompt).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"labeller.prompt: {config.prompt} cannot be read as UTF-8 text"
        raise ConfigError(message, hint="name a text file") from error
    if prompt.count(PLACE) != 1:
        message = f"labeller.prompt: {config.prompt} holds {PLACE} {prompt.count(PLACE)} times"
        raise ConfigError(message, hint=f"write {PLACE} once, where the text goes")
    return prompt


def question_id(prompt: str, config: LabellerConfig) -> str:
    """A hash of all that shapes an answer but the text and the model."""
    shape = f"{config.answers}\0{config.max_chars}\0{prompt}"
    return hashlib.sha256(shape.encode()).hexdigest()[:32]


def text_id(text: str) -> str:
    """A hash of the text that is sent."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def ask(prompt: str, texts: Sequence[str]) -> str:
    """The message about one text or several."""
    if len(texts) == 1:
        return prompt.replace(PLACE, texts[0])
    numbered = "\n\n".join(f"[{k}]\n{text}" for k, text in enumerate(texts, start=1))
    return prompt.replace(PLACE, numbered) + MANY.format(n=len(texts))


def read_answers(answer: str, n: int, kind: str) -> list[str | None]:
    """The label of each of `n` texts, None where the answer gives none, or two that differ."""
    if n == 1:
        return [read_answer(answer, kind)]
    found: dict[int, set[str | None]] = {}
    for line in answer.splitlines():
        match = NUMBERED.fullmatch(line.strip())
        if match:
            found.setdefault(int(match[1]), set()).add(read_answer(match[2], kind))
    sure = {k: next(iter(labels)) for k, labels in found.items() if len(labels) == 1}
    return [sure.get(k) for k in range(1, n + 1)]


def read_answer(answer: str, kind: str) -> str | None:
    """The label of an answer: a grade, or 1 and 0 for yes and no; None where it is neither."""
    match = ANSWERS[kind].fullmatch(answer.strip().lower())
    if not match:
        return None
    return YES_NO.get(match[1], match[1])
