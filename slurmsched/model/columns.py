"""Columns and tables: read-only numpy arrays, text columns, and frozen tables made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

NAN, INF = float("nan"), float("inf")

Bools = NDArray[np.bool_]
Int8s = NDArray[np.int8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Uint64s = NDArray[np.uint64]
Floats = NDArray[np.float64]


def frozen(values: Any, dtype: Any) -> NDArray[Any]:
    """The values as a read-only array of dtype. They are copied only if other code could write to them."""
    array = np.asarray(values, dtype=dtype)
    if array.flags.writeable:
        array = array.copy() if array is values else array
        array.flags.writeable = False
    return array


def made_read_only(fresh: NDArray[Any]) -> NDArray[Any]:
    """The same array, made read-only. No other code may refer to it."""
    fresh.flags.writeable = False
    return fresh


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """A text column: row i holds names[codes[i]]. Equal texts share one name.

    codes: (N,) int32.
    names: distinct texts in ascending order, so that equal columns have equal codes.
    """

    codes: Int32s
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "codes", frozen(self.codes, np.int32))

    @classmethod
    def of(cls, texts: Sequence[str]) -> Labels:
        """The column with these texts, row by row."""
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

    def rows(self) -> dict[str, int]:
        """Row of each text; of a text in several rows the last."""
        return {text: row for row, text in enumerate(self)}

    def take(self, rows: NDArray[Any]) -> Labels:
        """The column of the given rows (indices or a mask), without unused names."""
        codes = self.codes[rows]
        used = np.flatnonzero(np.bincount(codes, minlength=len(self.names)))
        if len(used) == len(self.names):
            return Labels(codes, self.names)
        place = np.empty(len(self.names), np.int32)
        place[used] = np.arange(len(used))
        return Labels(place[codes], tuple(self.names[c] for c in used))

    def followed_by(self, other: Labels) -> Labels:
        """The rows of this column, followed by those of another."""
        names = sorted({*self.names, *other.names})
        place = {name: code for code, name in enumerate(names)}
        codes = [
            np.array([place[name] for name in each.names], np.int32)[each.codes] for each in (self, other) if len(each)
        ]
        return Labels(np.concatenate([np.zeros(0, np.int32), *codes]), tuple(names))

    def map(self, function: Callable[[str], Any], dtype: Any) -> NDArray[Any]:
        """The function of each row's text, computed once for each name. (N,) of dtype."""
        if not self.names:
            return frozen(np.zeros(0, dtype), dtype)
        table = np.empty(len(self.names), dtype)
        table[:] = [function(name) for name in self.names]
        return frozen(table[self.codes], dtype)

    @property
    def any_text(self) -> bool:
        """Whether any row has a text."""
        return self.names not in ((), ("",))

    def isin(self, names: Iterable[str]) -> Bools:
        """Whether each row's text is one of names. (N,) bool."""
        wanted = frozenset(names)
        return self.map(wanted.__contains__, np.bool_)


# Tables.

T = TypeVar("T", bound="Table")


def column(dtype: Any, default: Any) -> Any:
    """A numeric column: its dtype, and the value of rows without one."""
    return field(metadata={"dtype": dtype, "default": default})


def text_column(default: str = "") -> Any:
    """A text column (Labels), and the text of rows without one."""
    return field(metadata={"dtype": Labels, "default": default})


class Table:
    """Base of frozen dataclasses whose every field is a column made by `column` or `text_column`."""

    __slots__ = ()

    @classmethod
    def build(cls: type[T], rows: int, columns: Mapping[str, Any]) -> T:
        """A table of `rows` rows from the given columns. Other columns hold their defaults.

        columns: name -> array or sequence (sequence of str or Labels for text).
        Raises ValueError for an unknown column or one of another length.
        """
        made: dict[str, Any] = {}
        for spec in fields(cls):  # type: ignore[arg-type]
            dtype, given = spec.metadata["dtype"], columns.get(spec.name)
            if dtype is Labels:
                made[spec.name] = _labels(given, spec.metadata["default"], rows)
            else:
                values = np.full(rows, spec.metadata["default"], dtype) if given is None else given
                made[spec.name] = frozen(values, dtype)
            if len(made[spec.name]) != rows:
                raise ValueError(f"column {spec.name} has {len(made[spec.name])} rows, not {rows}")
        unknown = set(columns) - set(made)
        if unknown:
            raise ValueError(f"{cls.__name__} has no column {', '.join(sorted(unknown))}")
        return cls(**made)

    @classmethod
    def _kind(cls: type[T]) -> type[T]:
        """The class of tables made from this one."""
        return cls

    def take(self: T, rows: Any) -> T:
        """The table of the given rows (indices or a mask)."""
        cut = {}
        for spec in fields(self):  # type: ignore[arg-type]
            values = getattr(self, spec.name)
            cut[spec.name] = values.take(rows) if isinstance(values, Labels) else frozen(values[rows], values.dtype)
        return self._kind()(**cut)

    def followed_by(self: T, other: T) -> T:
        """The rows of this table, followed by those of another one of its kind."""
        both: dict[str, Any] = {}
        for spec in fields(self):  # type: ignore[arg-type]
            one, two = getattr(self, spec.name), getattr(other, spec.name)
            both[spec.name] = one.followed_by(two) if isinstance(one, Labels) else np.concatenate([one, two])
        return self._kind().build(len(self) + len(other), both)

    def with_columns(self: T, **columns: Any) -> T:
        """This table with some columns replaced."""
        now = {spec.name: getattr(self, spec.name) for spec in fields(self)}  # type: ignore[arg-type]
        return self._kind().build(len(self), now | columns)

    def __len__(self) -> int:
        return len(getattr(self, self.__slots__[0]))  # type: ignore[misc]


def _labels(given: Any, default: str, rows: int) -> Labels:
    if given is None:
        return Labels.constant(default, rows)
    return given if isinstance(given, Labels) else Labels.of(given)
