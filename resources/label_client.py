"""A client of OpenAI-compatible chat endpoints that asks again, patiently, and keeps its key.

Refusals under load (408, 409, 425, 429, 5xx), broken connections, timeouts and answers that are no
JSON are asked again; each wait doubles, with jitter, and is never shorter than the endpoint's
Retry-After. A refusal of the key or the model ends the run; one of a single text is that text's
answer. The key stands in the header of requests only: messages about it are shown without.
"""

import email.utils
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import requests

from pipeline.config.labeller import LabellerConfig
from pipeline.errors import ConfigError, GristmillError

AGAIN = {408, 409, 425, 429, 500, 502, 503, 504, 509, 520, 522, 524, 529}
THIS_TEXT = {400, 413, 422}
"""Refusals that another text may not meet: too long, or against the endpoint's rules."""
LONGEST_WAIT = 120.0
BROKEN = (
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
)


class NoAnswer(Exception):
    """A request that got no answer after all tries."""


class RefusedText(Exception):
    """A request that the endpoint will not answer, whoever asks."""


@dataclass(frozen=True)
class Reply:
    """What a model said, and the tokens that were counted for it (None: it did not say)."""

    text: str
    tokens_in: int | None
    tokens_out: int | None


class ChatClient:
    """Asks one model. Threads may share it; each has its own connection."""

    def __init__(
        self,
        config: LabellerConfig,
        key: str | None,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not config.base_url or not config.model:
            name = "model" if config.base_url else "base_url"
            message = f"labeller.{name} is not set"
            raise ConfigError(message, hint="name the endpoint (…/v1) and its model")
        self.config = config
        self.url = f"{config.base_url}/chat/completions"
        self._key = key
        self._sleep = sleep
        self._local = threading.local()

    def __repr__(self) -> str:
        return f"ChatClient({self.url})"

    def ask(self, message: str, max_tokens: int) -> Reply:
        """The reply to one message.

        Raises NoAnswer after all tries, RefusedText, and GristmillError for a refusal that every
        request would meet.
        """
        body = {
            "model": self.config.model,
            "messages": [{"role": "user", "content": message}],
            "temperature": 0,
            "max_tokens": max_tokens,
        }
        why, least = "", 0.0
        for attempt in range(1, self.config.attempts + 1):
            if attempt > 1:
                self._sleep(self._wait(attempt - 1, least))
            least = 0.0
            try:
                answer = self._session().post(
                    self.url, json=body, timeout=self.config.timeout, allow_redirects=False
                )
            except BROKEN as error:
                why = type(error).__name__
                continue
            if answer.status_code in AGAIN:
                why, least = f"HTTP {answer.status_code}", retry_after(answer)
                continue
            self._check(answer)
            reply = read_reply(answer)
            if reply is not None:
                return reply
            why = "an answer that is no chat completion"
        message = f"{self.url}: {why}, {self.config.attempts} times"
        raise NoAnswer(message)

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = requests.Session()
            session.auth = _Bearer(self._key)  # also keeps a .netrc from being read
            self._local.session = session
        return session

    def _wait(self, attempt: int, least: float) -> float:
        ceiling = min(self.config.first_wait * 2 ** (attempt - 1), LONGEST_WAIT)
        return max(ceiling * (0.5 + 0.5 * random.random()), min(least, LONGEST_WAIT))

    def _check(self, answer: requests.Response) -> None:
        status = answer.status_code
        if status == 200:
            return
        said = self.hidden(answer.text)
        if status in THIS_TEXT:
            message = f"HTTP {status}: {said}"
            raise RefusedText(message)
        said = "" if status in (401, 403) else f": {said}"  # some repeat half of the key
        message = f"{self.url} refuses with HTTP {status}{said}"
        hints = {
            401: "is the key right that labeller.api_key_env names?",
            403: "may this key use the model labeller.model?",
            404: "labeller.base_url ends in /v1 mostly; does it have labeller.model?",
        }
        raise GristmillError(message, hint=hints.get(status, "check labeller.base_url and model"))

    def hidden(self, text: str) -> str:
        """The beginning of what an endpoint said, without the key, should it repeat that."""
        line = " ".join(text.split())
        if self._key:
            line = line.replace(self._key, "***")
        return line[:200]


class _Bearer(requests.auth.AuthBase):
    def __init__(self, key: str | None) -> None:
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._key:
            request.headers["Authorization"] = f"Bearer {self._key}"
        return request


def retry_after(answer: requests.Response) -> float:
    """Seconds the endpoint asks to wait, 0 where it does not: a number or a date."""
    value = answer.headers.get("Retry-After", "").strip()
    if not value:
        return 0.0
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0


def read_reply(answer: requests.Response) -> Reply | None:
    """The reply of a chat completion; None where the body is none."""
    try:
        value: Any = answer.json()
        choice = value["choices"][0]
        text = choice["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None
    used = value.get("usage") if isinstance(value.get("usage"), dict) else {}
    counts = [used.get(name) for name in ("prompt_tokens", "completion_tokens")]
    tokens = [n if isinstance(n, int) and n >= 0 else None for n in counts]
    said = text.encode("utf-8", "replace").decode() if isinstance(text, str) else ""
    return Reply(said, tokens[0], tokens[1])
