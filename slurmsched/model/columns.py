"""Columns: read-only numpy arrays and text columns, the material of every table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurmsched.model.quick import quickly

Bools = NDArray[np.bool_]
Int8s = NDArray[np.int8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Uint64s = NDArray[np.uint64]
Floats = NDArray[np.float64]


def frozen(values: Any, dtype: Any) -> NDArray[Any]:
    """values as a read-only array of dtype; copied only if something else could write to it."""
    array = np.asarray(values, dtype=dtype)
    if array.flags.writeable:
        array = array.copy() if array is values else array
        array.flags.writeable = False
    return array


def sealed(fresh: NDArray[Any]) -> NDArray[Any]:
    """An array that nothing else refers to, made read-only as it is."""
    fresh.flags.writeable = False
    return fresh


@quickly
@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """A text column: row i holds names[codes[i]]. Equal texts share one name.

    codes: (N,) int32. names: distinct texts in ascending order, so that equal columns have
    equal codes whatever the order of their making.
    """

    codes: Int32s
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "codes", frozen(self.codes, np.int32))

    @classmethod
    def of(cls, texts: Sequence[str]) -> Labels:
        """The column that holds these texts, row by row."""
        names = sorted(set(texts))
        code = {name: i for i, name in enumerate(names)}
        return cls(np.fromiter(map(code.__getitem__, texts), np.int32, len(texts)), tuple(names))

    @classmethod
    def constant(cls, text: str, rows: int) -> Labels:
        """The same text in every row."""
        return cls(np.zeros(rows, np.int32), (text,) if rows else ())

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> str:
        return self.names[self.codes[row]]

    def __iter__(self) -> Iterator[str]:
        return map(self.names.__getitem__, self.codes)

    def take(self, rows: NDArray[Any]) -> Labels:
        """The column of the given rows (indices or a mask), names no row holds dropped."""
        codes = self.codes[rows]
        used, inverse = np.unique(codes, return_inverse=True)
        return Labels(inverse.astype(np.int32), tuple(self.names[c] for c in used))

    def followed_by(self, other: Labels) -> Labels:
        """The rows of this column, then those of another."""
        names = sorted({*self.names, *other.names})
        place = {name: code for code, name in enumerate(names)}
        codes = [
            np.array([place[name] for name in each.names], np.int32)[each.codes] for each in (self, other) if len(each)
        ]
        return Labels(np.concatenate([np.zeros(0, np.int32), *codes]), tuple(names))

    def map(self, function: Callable[[str], Any], dtype: Any) -> NDArray[Any]:
        """function of each row's text, computed once a name. (N,) of dtype."""
        if not self.names:
            return frozen(np.zeros(0, dtype), dtype)
        table = np.empty(len(self.names), dtype)
        table[:] = [function(name) for name in self.names]
        return frozen(table[self.codes], dtype)

    def isin(self, names: Iterable[str]) -> Bools:
        """Whether each row's text is one of names. (N,) bool."""
        wanted = frozenset(names)
        return self.map(wanted.__contains__, np.bool_)
