"""Text rows to columns: each distinct text is looked at once, whatever the number of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.errors import UnreadableError
from slurmsched.model.columns import Bools, Int32s, Labels
from slurmsched.slurm.text import LAST_S, MOST, is_signed, signed


@dataclass(frozen=True, slots=True)
class Grouped:
    """Several text columns that mostly repeat together: distinct combinations, and which one each row has.

    codes: (N,) int32 row of `columns`. columns: name -> its text in each of the U distinct combinations.
    """

    codes: Int32s
    columns: dict[str, list[str]]

    @classmethod
    def split(cls, texts: Sequence[str], separator: str, names: Sequence[str]) -> Grouped:
        """Columns of rows whose fields are joined by the separator. Raises UnreadableError for a short or long row."""
        distinct = list(dict.fromkeys(texts))
        code = {text: i for i, text in enumerate(distinct)}
        codes = np.fromiter(map(code.__getitem__, texts), np.int32, len(texts))
        return cls(codes, split_columns(distinct, separator, names))

    def labels(self, name: str, clean: Callable[[str], str] = str) -> Labels:
        """A column as text, cleaned once for each distinct value."""
        known = {text: clean(text) for text in set(self.columns[name])}
        return self.expand_labels([known[text] for text in self.columns[name]])

    def numbers(
        self, name: str, convert: Callable[[str], Any], dtype: Any, odd: Bools | None = None, otherwise: Any = 0
    ) -> Any:
        """A column converted once for each distinct text. (N,) of dtype.

        odd: (N,) bool, set where a text cannot be converted; such a row has `otherwise`.
        Raises UnreadableError for such a text where there is no `odd`.
        """
        values, strange = convert_each(self.columns[name], convert, dtype, otherwise)
        if strange.any():
            if odd is None:
                raise UnreadableError(f"not a value of {name}", text=self.columns[name][int(strange.argmax())])
            odd |= strange[self.codes]
        return values[self.codes]

    def expand(self, values: Iterable[Any], dtype: Any) -> Any:
        """Values given by combination, as a column of rows. (N,) of dtype."""
        return np.asarray(list(values), dtype)[self.codes]

    def expand_labels(self, texts: Sequence[str]) -> Labels:
        """Texts given by combination, as a column of rows."""
        labels = Labels.of(texts)
        return Labels(labels.codes[self.codes], labels.names)

    def rows(self, *names: str) -> Iterable[tuple[str, ...]]:
        """These columns' texts, combination by combination."""
        return zip(*(self.columns[name] for name in names), strict=True)


def split_columns(texts: Sequence[str], separator: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Columns by name of rows whose fields are joined by the separator. Raises UnreadableError."""
    width = len(names)
    flat = separator.join(texts).split(separator) if texts else []
    if len(flat) != width * len(texts):
        bad = next(text for text in texts if text.count(separator) != width - 1)
        raise UnreadableError(f"expected {width} fields ({', '.join(names)})", text=bad)
    return {name: flat[i::width] for i, name in enumerate(names)}


def integers(texts: Sequence[str], low: int = -MOST, high: int = MOST) -> tuple[Any, Bools]:
    """Numbers, and which rows are none from low to high: these have 0. (N,) int64, (N,) bool."""
    try:
        if not _plain(texts):
            raise ValueError
        values = np.fromiter(map(int, texts), np.int64, len(texts))
    except (ValueError, OverflowError):
        told = {text: signed(text) if is_signed(text) else high + 1 for text in set(texts)}
        values = np.fromiter(map(told.__getitem__, texts), np.int64, len(texts))
    odd = (values < low) | (values > high)
    return np.where(odd, 0, values), odd


def times(texts: Sequence[str], convert: Callable[[str], float]) -> tuple[Any, Bools]:
    """Unix seconds by the fast way when all are plain numbers, and which rows are none. (N,) float64, (N,) bool."""
    try:
        if not _plain(texts):
            raise ValueError
        values = np.fromiter(map(int, texts), np.float64, len(texts))
    except (ValueError, OverflowError):
        return convert_each(texts, convert, np.float64, np.nan)
    odd = (values < 0) | (values >= LAST_S)
    values[odd | (values == 0)] = np.nan
    return values, odd


def convert_each(texts: Sequence[str], convert: Callable[[str], Any], dtype: Any, otherwise: Any) -> tuple[Any, Bools]:
    """Each distinct text converted once, and which rows raised UnreadableError: these have `otherwise`."""
    known: dict[str, Any] = {}
    for text in set(texts):
        try:
            known[text] = convert(text)
        except UnreadableError:
            known[text] = None
    odd = np.fromiter((known[text] is None for text in texts), np.bool_, len(texts))
    values = (otherwise if (value := known[text]) is None else value for text in texts)
    return np.fromiter(values, dtype, len(texts)), odd


def _plain(texts: Sequence[str]) -> bool:
    """Whether Python reads no more into these numbers than Slurm: other alphabets' digits, 1_000."""
    joined = "".join(texts)
    return joined.isascii() and "_" not in joined
