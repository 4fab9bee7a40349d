"""Frozen dataclasses that are made often: an __init__ that costs a third of what dataclasses writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

T = TypeVar("T")
_FRESH: Any = object()  # stands for a default that is made anew for each instance


def quickly(cls: type[T]) -> type[T]:
    """The frozen dataclass with slots, made faster: its __init__ fills the slots themselves and does not go by the
    name of each attribute. Parameters, defaults and __post_init__ stay as they are."""
    specs = fields(cls)  # type: ignore[arg-type]
    known: dict[str, Any] = {"_FRESH": _FRESH}
    lines = [_line(cls, spec, known) for spec in specs]
    if hasattr(cls, "__post_init__"):
        lines.append("    self.__post_init__()")
    parameters = ", ".join(_parameter(spec, known) for spec in specs)
    exec("\n".join([f"def __init__(self, {parameters}):", *lines]), known)
    made: Callable[..., None] = known["__init__"]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    cls.__init__ = made  # type: ignore[method-assign]
    return cls


def _line(cls: type[Any], spec: Field[Any], known: dict[str, Any]) -> str:
    """What fills the slot of a field."""
    known[f"_put_{spec.name}"] = getattr(cls, spec.name).__set__
    if spec.default_factory is MISSING:
        return f"    _put_{spec.name}(self, {spec.name})"
    known[f"_make_{spec.name}"] = spec.default_factory
    return f"    _put_{spec.name}(self, _make_{spec.name}() if {spec.name} is _FRESH else {spec.name})"


def _parameter(spec: Field[Any], known: dict[str, Any]) -> str:
    if spec.default_factory is not MISSING:
        return f"{spec.name}=_FRESH"
    if spec.default is MISSING:
        return spec.name
    known[f"_default_{spec.name}"] = spec.default
    return f"{spec.name}=_default_{spec.name}"
