"""Text rows to columns: each distinct text is looked at once, whatever the number of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.errors import UnreadableError
from slurmsched.model.columns import Int32s, Labels


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

    def numbers(self, name: str, convert: Callable[[str], Any], dtype: Any) -> Any:
        """A column converted once for each distinct text. (N,) of dtype."""
        known = {text: convert(text) for text in set(self.columns[name])}
        return self.expand([known[text] for text in self.columns[name]], dtype)

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


def integers(texts: Sequence[str]) -> Any:
    """(N,) int64. Raises UnreadableError."""
    try:
        return np.fromiter(map(int, texts), np.int64, len(texts))
    except ValueError as error:
        raise UnreadableError(f"not a number: {error}") from None


def times(texts: Sequence[str], convert: Callable[[str], float]) -> Any:
    """(N,) float64 Unix seconds, by the fast way when all are plain numbers."""
    try:
        values = np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        known = {text: convert(text) for text in set(texts)}
        return np.fromiter(map(known.__getitem__, texts), np.float64, len(texts))
    values[values == 0] = np.nan
    return values
