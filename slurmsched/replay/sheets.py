"""What pages are made of: tables to sort, and plots with words for who cannot see them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cell:
    """value: what a column is sorted by, "" if nothing is known. ratio: over the first policy, "" if not told."""

    text: str
    value: float | str
    ratio: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table to sort; the first column holds names."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """alt: what it shows, for who cannot see it."""

    title: str
    caption: str
    alt: str
    html: str
    wide: bool = False
