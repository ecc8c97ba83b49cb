"""What a person can mend about a training run; `training` imports nothing of the other packages.

TrainingError         exit code 1: data, checkpoint or hardware does not allow the run to go on
├── RunConfigError    exit code 2: a key of the run file, its value and the fix
├── QuarantineError   exit code 4: the same data spike again and again; a person must look at them
└── LostRanksError    exit code 1: other ranks of the job are not there; a new attempt may find them
"""

from __future__ import annotations


class TrainingError(Exception):
    """A failure with one sentence for the person who meets it, and a hint."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class RunConfigError(TrainingError):
    """A key of the run file that is unknown, absurd, or contradicts another."""

    exit_code = 2


class LostRanksError(TrainingError):
    """The ranks of an attempt did not find each other; the agents may try again."""


class QuarantineError(TrainingError):
    """The same sequences were refused again: the data are at fault, not the moment."""

    exit_code = 4
