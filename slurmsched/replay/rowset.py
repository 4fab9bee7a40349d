"""Rows of a job table that are in some state now, in ascending order."""

from __future__ import annotations

import numpy as np

from slurmsched.model.columns import Int64s


class RowSet:
    """A set of rows kept in order while single ones come and go: cheap to read whole, whatever the table's length."""

    def __init__(self) -> None:
        self._rows, self._count = np.zeros(64, np.int64), 0

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> Int64s:
        """The rows, ascending; valid until the next change."""
        return self._rows[: self._count]

    def add(self, row: int) -> None:
        """Put a row in; nothing happens if it is there."""
        place = int(self.rows.searchsorted(row))
        if place < self._count and self._rows[place] == row:
            return
        if self._count == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[place + 1 : self._count + 1] = self._rows[place : self._count]
        self._rows[place] = row
        self._count += 1

    def discard(self, row: int) -> None:
        """Take a row out; nothing happens if it is not there."""
        place = int(self.rows.searchsorted(row))
        if place < self._count and self._rows[place] == row:
            self._rows[place : self._count - 1] = self._rows[place + 1 : self._count]
            self._count -= 1
