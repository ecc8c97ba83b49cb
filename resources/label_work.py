"""The requests of one labelling: several at a time, within a purse, every answer kept at once."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from pipeline.config.labeller import LabellerConfig
from pipeline.errors import GristmillError
from pipeline.quality.answers import ask, read_answers
from resources.label_cache import Answer, LabelCache
from resources.label_client import ChatClient, NoAnswer, RefusedText, Reply

REFUSED, NO_ANSWER = "labeller.refused", "labeller.no_answer"
OVER_LIMIT = "labeller.over_limit"
BYTES_PER_TOKEN = 3.0
"""Low on purpose: English has 4 to 5 bytes a token, so that an estimate is rather too high."""
MILLION = 1_000_000
GIVE_UP = 10
"""Requests without an answer, one after the other, after which the endpoint is taken for down."""


@dataclass
class Purse:
    """What is spent, and how much may be; None: no limit."""

    price_in: float
    price_out: float
    limit: float | None
    spent: float = 0.0
    tokens: list[int] = field(default_factory=lambda: [0, 0])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def cost(self, tokens_in: float, tokens_out: float) -> float:
        """The price of tokens."""
        return (tokens_in * self.price_in + tokens_out * self.price_out) / MILLION

    def pay(self, tokens_in: int, tokens_out: int) -> None:
        """Count tokens that were used."""
        with self.lock:
            self.tokens[0] += tokens_in
            self.tokens[1] += tokens_out
            self.spent += self.cost(tokens_in, tokens_out)

    def allows(self, more: float) -> bool:
        """Whether `more` can be spent still."""
        return self.limit is None or self.spent + more <= self.limit


def tokens_of(prompt: str, texts: Sequence[str]) -> int:
    """Tokens of a message, rather too many than too few."""
    size = len(prompt.encode()) + sum(len(text.encode("utf-8", "replace")) for text in texts)
    return int(size / BYTES_PER_TOKEN) + 16


class LabelWork:
    """The requests of one call."""

    def __init__(
        self, config: LabellerConfig, client: ChatClient, cache: LabelCache, purse: Purse,
        prompt: str,
    ) -> None:  # fmt: skip
        self.config, self.client, self.cache = config, client, cache
        self.purse, self.prompt = purse, prompt

    def run(self, missing: dict[str, str]) -> tuple[dict[str, Answer], dict[str, str]]:
        """Answers by hash, and reasons of texts without one."""
        answers: dict[str, Answer] = {}
        reasons: dict[str, str] = {}
        batches = self._batches(missing, reasons)
        silent = 0
        with ThreadPoolExecutor(self.config.concurrency) as pool:
            running: set[Future[tuple[dict[str, Answer], dict[str, str]]]] = set()
            try:
                while True:
                    while len(running) < self.config.concurrency and (batch := next(batches, None)):
                        running.add(pool.submit(self._ask, batch, {k: missing[k] for k in batch}))
                    if not running:
                        break
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for one in done:
                        got, lost = one.result()
                        answers |= got
                        reasons |= lost
                        silent = silent + 1 if NO_ANSWER in lost.values() and not got else 0
                    self._check_alive(silent)
            finally:
                for one in running:
                    one.cancel()
        if not answers and NO_ANSWER in reasons.values():
            message = f"{self.client.url} gave no answer to any request"
            raise GristmillError(message, hint="check labeller.base_url, and that it is running")
        return answers, reasons

    def _batches(self, missing: dict[str, str], reasons: dict[str, str]) -> Iterator[list[str]]:
        """Hashes to ask about at once, as long as there is money for all that is under way."""
        keys = list(missing)
        ahead = 0.0
        for start in range(0, len(keys), self.config.batch):
            batch = keys[start : start + self.config.batch]
            worst = self.purse.cost(
                tokens_of(self.prompt, [missing[k] for k in batch]),
                len(batch) * self.config.max_tokens,
            )
            ahead = max(ahead, worst * self.config.concurrency)
            if self.purse.allows(ahead):
                yield batch
            else:
                reasons |= dict.fromkeys(batch, OVER_LIMIT)

    def _check_alive(self, silent: int) -> None:
        if silent >= GIVE_UP:
            message = f"{self.client.url} gave no answer to {silent} requests in a row"
            raise GristmillError(message, hint="answers that came are kept; run it again later")

    def _ask(
        self, batch: list[str], texts: dict[str, str]
    ) -> tuple[dict[str, Answer], dict[str, str]]:
        """Ask about texts together, then once more about each that got no label."""
        got: dict[str, Answer] = {}
        lost: dict[str, str] = {}
        try:
            got = self._once(batch, texts)
        except RefusedText:
            if len(batch) == 1:
                return {}, {batch[0]: REFUSED}
        except NoAnswer:
            return {}, dict.fromkeys(batch, NO_ANSWER)
        self.cache.keep({key: answer for key, answer in got.items() if answer.label is not None})
        for key in batch:
            if key in got and got[key].label is not None:
                continue
            try:
                got |= self._once([key], texts)
                self.cache.keep({key: got[key]})
            except RefusedText:
                lost[key] = REFUSED
            except NoAnswer:
                lost[key] = NO_ANSWER
        return got, lost

    def _once(self, keys: list[str], texts: dict[str, str]) -> dict[str, Answer]:
        given = [texts[key] for key in keys]
        reply = self.client.ask(ask(self.prompt, given), self.config.max_tokens * len(keys))
        counted = self._counted(reply, given)
        self.purse.pay(*counted)
        share = [n // len(keys) for n in counted]
        labels = read_answers(reply.text, len(keys), self.config.answers)
        said = reply.text if len(keys) == 1 else ""
        return {
            key: Answer(label, said or label or "", *share)
            for key, label in zip(keys, labels, strict=True)
        }

    def _counted(self, reply: Reply, texts: list[str]) -> tuple[int, int]:
        """Tokens as the endpoint counted them, else as they were estimated."""
        tokens_in, tokens_out = reply.tokens_in, reply.tokens_out
        return (
            tokens_of(self.prompt, texts) if tokens_in is None else tokens_in,
            self.config.max_tokens * len(texts) if tokens_out is None else tokens_out,
        )
