"""What runs hold on which nodes."""

from __future__ import annotations

import numpy as np

from slurmsched.model.columns import Bools, Int64s
from slurmsched.replay.rowset import RowSet


class Holdings:
    """Nodes of each row that holds some, and GPUs, CPUs and MiB held there; flat, so that many are read at once."""

    def __init__(self, rows: int) -> None:
        self._first, self._count = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        self._node, self._held, self._used = np.zeros(1024, np.int64), np.zeros((1024, 3), np.int64), 0
        self._holders = RowSet()

    @property
    def rows(self) -> Int64s:
        """Rows that hold something, ascending; valid until the next change."""
        return self._holders.rows

    def of(self, row: int) -> tuple[Int64s, Int64s]:
        """Nodes of the row (K,), and what it holds on them (K, 3)."""
        parts = slice(self._first[row], self._first[row] + self._count[row])
        return self._node[parts], self._held[parts]

    def take(self, row: int, node: Int64s, held: Int64s) -> None:
        """The row, which holds nothing, holds this from now on."""
        if self._used + len(node) > len(self._node):
            self._make_room(len(node))
        parts = slice(self._used, self._used + len(node))
        self._node[parts], self._held[parts] = node, held
        self._first[row], self._count[row], self._used = self._used, len(node), parts.stop
        self._holders.add(row)

    def keep(self, row: int, kept: Bools) -> None:
        """The row gives back its nodes but these. kept: (K,)."""
        node, held = self.of(row)
        node, held, first = node[kept], held[kept], self._first[row]
        self._node[first : first + len(node)], self._held[first : first + len(node)] = node, held
        self._count[row] = len(node)

    def drop(self, row: int) -> None:
        self._holders.discard(row)

    def parts(self, rows: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """How many nodes each row holds (R,), and one after the other their nodes (H,) and what is held (H, 3)."""
        count = self._count[rows]
        ends = np.cumsum(count)
        at = np.arange(ends[-1] if len(ends) else 0) + np.repeat(self._first[rows] - (ends - count), count)
        return count, self._node[at], self._held[at]

    def _make_room(self, wanted: int) -> None:
        """Leave out what was dropped, and double the room if that is not enough."""
        rows = self._holders.rows.copy()
        count, node, held = self.parts(rows)
        size = len(self._node)
        while len(node) + wanted > size // 2:
            size *= 2
        self._node, self._held, self._used = np.zeros(size, np.int64), np.zeros((size, 3), np.int64), len(node)
        self._node[: len(node)], self._held[: len(node)] = node, held
        self._first[rows] = np.cumsum(count) - count
