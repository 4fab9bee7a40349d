"""How a table of columns is declared, built and cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, TypeVar

import numpy as np

from slurmsched.model.columns import Labels, frozen

T = TypeVar("T", bound="Table")


def column(dtype: Any, default: Any) -> Any:
    """A numeric column: its dtype, and the value of rows whose source does not tell."""
    return field(metadata={"dtype": dtype, "default": default})


def text(default: str = "") -> Any:
    """A text column (Labels), and the text of rows whose source does not tell."""
    return field(metadata={"dtype": Labels, "default": default})


class Table:
    """Base of frozen dataclasses whose every field is a column made by `column` or `text`."""

    __slots__ = ()

    @classmethod
    def build(cls: type[T], rows: int, columns: Mapping[str, Any]) -> T:
        """A table of `rows` rows from the given columns; columns not given hold their defaults.

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
        """The rows of this table, then those of another one of its kind."""
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
