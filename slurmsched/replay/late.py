"""Tables whose columns are made when first looked at: a cycle pays for what its policy reads, no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slurmsched.model import Allocations, Jobs, Nodes

Maker = Callable[[str], Any]


def _init(table: Any, rows: int, maker: Maker) -> None:
    object.__setattr__(table, "_maker", maker)
    object.__setattr__(table, "_rows", rows)


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
    """rows: how many. maker: column name -> column, which must be the same whenever it is asked for."""

    __slots__ = ("_maker", "_rows")
    __init__, __getattr__, __len__ = _init, _made, _len  # type: ignore[assignment]

    @classmethod
    def _kind(cls) -> type[Jobs]:  # type: ignore[override]
        return Jobs


class LateNodes(Nodes):
    """As LateJobs."""

    __slots__ = ("_maker", "_rows")
    __init__, __getattr__, __len__ = _init, _made, _len  # type: ignore[assignment]

    @classmethod
    def _kind(cls) -> type[Nodes]:  # type: ignore[override]
        return Nodes


class LateAllocations(Allocations):
    """As LateJobs."""

    __slots__ = ("_maker", "_rows")
    __init__, __getattr__, __len__ = _init, _made, _len  # type: ignore[assignment]

    @classmethod
    def _kind(cls) -> type[Allocations]:  # type: ignore[override]
        return Allocations
