"""Tables some of whose columns are made when first looked at: a cycle pays for what its policy reads, no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from slurmsched.model import Allocations, Jobs

Maker = Callable[[str], Any]


Setter = Callable[[Any, Any], None]


def setters(kind: type[Any], *names: str) -> tuple[Setter, ...]:
    """What sets these columns of a new table of this kind, which is frozen to all others."""
    return tuple(getattr(kind, name).__set__ for name in names)


def _init(table: Any, rows: int, maker: Maker, put: Iterable[Setter] = (), ready: Iterable[Any] = ()) -> None:
    object.__setattr__(table, "_maker", maker)
    object.__setattr__(table, "_rows", rows)
    for setter, column in zip(put, ready, strict=True):
        setter(table, column)


def _made(table: Any, name: str) -> Any:
    """The column, made now and kept. Python comes here when the slot of a column is not set yet."""
    if name.startswith("_"):
        raise AttributeError(name)
    column = table._maker(name)
    object.__setattr__(table, name, column)
    return column


def _len(table: Any) -> int:
    rows: int = table._rows
    return rows


class LateJobs(Jobs):
    """rows: how many. maker: column name -> column, which must be the same whenever it is asked for. put,
    ready: columns that are there already, and what sets them (see setters)."""

    __slots__ = ("_maker", "_rows")
    __init__, __getattr__, __len__ = _init, _made, _len  # type: ignore[assignment]

    @classmethod
    def _kind(cls) -> type[Jobs]:  # type: ignore[override]
        return Jobs


class LateAllocations(Allocations):
    """As LateJobs."""

    __slots__ = ("_maker", "_rows")
    __init__, __getattr__, __len__ = _init, _made, _len  # type: ignore[assignment]

    @classmethod
    def _kind(cls) -> type[Allocations]:  # type: ignore[override]
        return Allocations
