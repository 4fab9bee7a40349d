"""Rows that make up one job: found by id, joined into one row."""

from __future__ import annotations

from collections.abc import Callable
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
    order = np.argsort(columns["job_id"], kind="stable")
    _, first, counts = np.unique(columns["job_id"][order], return_index=True, return_counts=True)
    kept = order[first]
    joined = [(place, join(columns, order[first[place] : first[place] + counts[place]]))
              for place in np.flatnonzero(counts > 1).tolist()]  # fmt: skip
    for place, values in joined:
        kept[place] = values["row"]
    made = {name: cut(values, kept) for name, values in columns.items()}
    for place, values in joined:
        for name, value in values.items():
            if name != "row":
                made[name][place] = value
    return made


def cut(values: Any, rows: Any) -> Any:
    """The chosen rows of a column, writable if it is numeric."""
    return values.take(rows) if isinstance(values, Labels) else values[rows].copy()
