"""Rows that make up one job: found by id, joined into one row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurmsched.model.columns import Labels
from slurmsched.replay.loaders.rows import Columns

Groups = NDArray[np.int64]  # rows of one job, in file order


def grouped(columns: Columns, join: Callable[[Columns, Groups], dict[str, Any]]) -> Columns:
    """The columns with the rows of each id that comes more than once joined into one.

    join: the values of the joined row by column name, and as "row" the row that the other columns are taken from.
    """
    single, several = by_id(columns, np.argsort(columns["job_id"], kind="stable"))
    return with_joined(columns, single, [join(columns, rows) for rows in several])


def by_id(columns: Columns, order: Groups) -> tuple[Groups, list[Groups]]:
    """Rows whose id comes once, and the rows of each other id in the given order, which must have ids ascending."""
    _, first, counts = np.unique(columns["job_id"][order], return_index=True, return_counts=True)
    several = [order[at : at + count] for at, count in zip(first, counts, strict=True) if count > 1]
    return order[first[counts == 1]], several


def with_joined(columns: Columns, single: Groups, joined: Sequence[dict[str, Any]]) -> Columns:
    """The single rows, then one row for each mapping: its values, the rest as in its "row"."""
    kept = np.concatenate([single, np.array([values["row"] for values in joined], np.int64)])
    made = {name: _cut(values, kept) for name, values in columns.items()}
    for place, values in enumerate(joined, len(single)):
        for name in values.keys() - {"row"}:
            made[name][place] = values[name]
    return made


def _cut(values: Any, rows: Any) -> Any:
    """The chosen rows of a column, writable if it is numeric."""
    return values.take(rows) if isinstance(values, Labels) else values[rows].copy()
