"""The errors Gristmill raises for what a person can mend.

    GristmillError            a data or service failure                     exit code 1
    ├── ConfigError           a key, its value and the fix                  exit code 2
    ├── UsageError            a path or argument of the wrong kind          exit code 2
    ├── ContractError         a table or manifest that breaks its promise
    ├── DamagedPartError      a part whose rows or checksum disagree with its manifest
    ├── GateError             a manifest whose blocking gate failed
    └── StorageError          a store that refused, after retries
        └── ConflictError     a pointer that somebody else moved

Messages are one sentence: what, where, the value; `hint` says what to do next. Anything else that
escapes is a bug and keeps its traceback.
"""

from __future__ import annotations


class GristmillError(Exception):
    """A failure with a sentence for the person who meets it, and a hint."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # worker processes send errors back by pickle; keyword arguments need help
        return (_rebuild, (type(self), self.message, self.hint))


def _rebuild(kind: type[GristmillError], message: str, hint: str | None) -> GristmillError:
    return kind(message, hint=hint)


class ConfigError(GristmillError):
    """A configuration key that is unknown, absurd or contradicts another."""

    exit_code = 2


class UsageError(GristmillError):
    """A command used wrongly: a path that is absent or of the wrong kind, a missing argument."""

    exit_code = 2


class ContractError(GristmillError):
    """A table, manifest or file that does not keep the contract it was written under."""


class DamagedPartError(ContractError):
    """A part whose bytes, rows or checksum disagree with the manifest that names it."""


class GateError(GristmillError):
    """A dataset whose blocking quality gate failed and was not accepted."""


class StorageError(GristmillError):
    """A store that refused a request, after all retries."""


class ConflictError(StorageError):
    """A pointer that moved between reading and writing it."""
