"""The configuration as text: a commented TOML file of the defaults, and the tree as flat rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from slurmsched.config import Config, Plugin


def default_toml() -> str:
    """A configuration file that changes nothing: every key with its default, unit and meaning as comments.

    Keys without a default are commented out. Made from the fields of Config.
    """
    config = Config()
    lines = ["# Configuration of slurmsched: every key with its default. Keys left out have these values too.", ""]
    for name, field in Config.model_fields.items():
        value = getattr(config, name)
        if not isinstance(value, BaseModel) or isinstance(value, Plugin):
            lines += [*_entry(name, field, value), ""]
    for name in Config.model_fields:
        section = getattr(config, name)
        if isinstance(section, BaseModel) and not isinstance(section, Plugin):
            lines += _section(name, section)
    return "\n".join(lines).rstrip() + "\n"


def flat(config: Config) -> Iterator[tuple[str, Any]]:
    """Each dotted key with its value, in the order of the tree."""
    yield from _flat(config.model_dump(mode="json"), "")


def toml_value(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, Plugin):
        return toml_value({"name": value.name, **value.parameters})
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml_value(part)}" for key, part in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)


def _section(name: str, section: BaseModel) -> list[str]:
    lines = [f"# {(type(section).__doc__ or '').splitlines()[0]}", f"[{name}]"]
    for key, field in type(section).model_fields.items():
        lines += _entry(key, field, getattr(section, key))
    return [*lines, ""]


def _entry(key: str, field: FieldInfo, value: Any) -> list[str]:
    comment = f"# {field.description}"
    if value is None:
        plugin = isinstance(field.annotation, UnionType) and Plugin in get_args(field.annotation)
        return [comment, f'# {key} = {{ name = "..." }}' if plugin else f'# {key} = "..."']
    return [comment, f"{key} = {toml_value(value)}"]


def _flat(tree: dict[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield before + key, value
