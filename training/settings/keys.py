"""The keys of a run file as they are written. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from training.errors import RunConfigError


class Once(yaml.SafeLoader):
    """Safe YAML whose keys are words, each there once: YAML itself would take the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As the base class's."""
        keys = [key.value for key, _ in node.value if key.tag == "tag:yaml.org,2002:str"]
        others = [key for key, _ in node.value if not key.tag.endswith((":str", ":merge"))]
        twice = [key for n, key in enumerate(keys) if key in keys[:n]]
        if twice or others:
            line = (others[0] if others else node).start_mark.line + 1
            why = f"the key {twice[0]} is there twice" if twice else "a key is no word"
            message = f"{why}, in or after line {line}"
            raise yaml.YAMLError(message)
        return super().construct_mapping(node, deep)


def read_keys(path: Path) -> dict[str, Any]:
    """What a run file says; RunConfigError where it is no YAML of keys, or not there."""
    if not there(path):
        message = f"{path}: there is no such run file"
        raise RunConfigError(message, hint="write runs/<name>.yaml in the storage root")
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Once)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError, OSError) as error:
        message = f"{path} is no YAML: {str(error).splitlines()[0]}"
        raise RunConfigError(message, hint="one `key: value` a line, each key once") from error
    if not isinstance(content, dict):
        message = f"{path} holds no keys"
        raise RunConfigError(message, hint="at least tokenizer, steps, and plan or shards")
    return content


def there(path: Path, ask: Callable[[Path], bool] = Path.is_file) -> bool:
    """Whether there is such a file; none has a name that the system cannot take."""
    try:
        return ask(path)
    except (OSError, ValueError):
        return False


def section_of(kind: type[BaseModel], place: Sequence[int | str]) -> type[BaseModel]:
    """The section that a place in a run file is in: `("spikes",)` of a run is SpikeConfig."""
    for part in place:
        field = kind.model_fields.get(str(part))
        found = () if field is None else (field.annotation, *get_args(field.annotation))
        kind = next((t for t in found if isinstance(t, type) and issubclass(t, BaseModel)), kind)
    return kind
