"""The base of every configuration section."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict

PASSWORD = re.compile(r"^[a-z0-9+.-]+://[^/@]+@", re.IGNORECASE)


class Section(BaseModel):
    """A frozen section: unknown keys are errors, values are validated."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def without_password(address: str | None) -> str | None:
    """An address that may stand in manifests and logs; ValueError where it holds credentials."""
    if address and PASSWORD.match(address):
        message = "it holds a user name or password, which would stand in every manifest"
        raise ValueError(message)
    return address
