"""Frozen dataclasses as the library makes them, for less: what a cold command makes is a tenth of its time, and those
that are made often have an __init__ that costs a third of the library's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")
_FRESH: Any = object()  # stands for a default that is made anew for each instance

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool = False, slots: bool = False, eq: bool = True, **options: Any) -> Any:
        """dataclasses.dataclass, whose frozen classes with slots take a quarter of the time to make.

        The library writes the source of six methods for each and compiles it. Here all share theirs, but __init__.
        """
        if not (frozen and slots) or options:
            return dataclasses.dataclass(frozen=frozen, slots=slots, eq=eq, **options)

        def made(cls: type[T]) -> type[T]:
            plain = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
            return _with_shared(quickly(plain), eq=eq)

        return made


def quickly(cls: type[T]) -> type[T]:
    """The frozen dataclass with slots, made faster: its __init__ fills the slots themselves and does not go by the
    name of each attribute. Parameters, defaults and __post_init__ stay as they are."""
    specs = fields(cls)  # type: ignore[arg-type]
    known: dict[str, Any] = {"_FRESH": _FRESH}
    lines = [_line(cls, spec, known) for spec in specs]
    if hasattr(cls, "__post_init__"):
        lines.append("    self.__post_init__()")
    parameters = ", ".join(_parameter(spec, known) for spec in specs)
    exec("\n".join([f"def __init__(self, {parameters}):", *(lines or ["    pass"])]), known)
    made: Callable[..., None] = known["__init__"]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    cls.__init__ = made  # type: ignore[method-assign]
    return cls


def _with_shared(cls: type[T], *, eq: bool) -> type[T]:
    """The class with what the library would write for it: it is frozen, shown and pickled, and compared if eq."""
    given: dict[str, Any] = {
        "__setattr__": _no_set, "__delattr__": _no_delete, "__repr__": _shown, "__getstate__": _state,
        "__setstate__": _restore,
    }  # fmt: skip
    if eq:
        given |= _compared([spec.name for spec in fields(cls) if spec.compare])  # type: ignore[arg-type]
    for name, method in given.items():
        if vars(cls).get(name) is None:  # not the class's own
            setattr(cls, name, method)
    return cls


def _compared(names: list[str]) -> dict[str, Any]:
    """__eq__ and __hash__ by the values of these fields."""
    values = attrgetter(*names) if len(names) > 1 else lambda made: tuple(getattr(made, name) for name in names)

    def same(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return {"__eq__": same, "__hash__": lambda self: hash(values(self))}


def _no_set(self: Any, name: str, _: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _no_delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _shown(self: Any) -> str:
    values = (f"{spec.name}={getattr(self, spec.name)!r}" for spec in fields(self) if spec.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"


def _state(self: Any) -> list[Any]:
    return [getattr(self, spec.name) for spec in fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for spec, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, spec.name, value)


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
