"""Sections of which only some keys are set: what one language has otherwise than all."""

from __future__ import annotations

from collections.abc import Set
from copy import copy
from typing import Any

from pydantic import SerializerFunctionWrapHandler, create_model, model_serializer

from pipeline.config.base import Section


class Partial(Section):
    """A section that stands in manifests with the keys that were set, and no others."""

    @model_serializer(mode="wrap")
    def _only_set(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values = handler(self)
        return {key: values[key] for key in sorted(self.model_fields_set)}


def partial(name: str, section: type[Section], without: Set[str]) -> Any:
    """The class of `section` in part: the same keys with the same ranges, but for `without`."""
    fields: dict[str, Any] = {
        key: (field.annotation, copy(field))
        for key, field in section.model_fields.items()
        if key not in without
    }
    return create_model(name, __base__=Partial, __module__=__name__, **fields)
