"""What all sections of a run file have in common."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    """Frozen; an unknown key, a number without end and a truth in place of one are errors."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _numbers(cls, data: Any) -> Any:
        """`yes` is no 1: pydantic would take it for that."""
        for key, value in data.items() if isinstance(data, dict) else ():
            field = cls.model_fields.get(key)
            kinds = set() if field is None else {field.annotation, *get_args(field.annotation)}
            if isinstance(value, bool) and bool not in kinds and kinds & {int, float}:
                message = f"{key} is {value}, not a number"
                raise ValueError(message)
        return data
