"""A table of labelled rows and columns, as the vendors' tools print it, whole or damaged."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

GPU = re.compile(r"GPU(\d{1,4})")


@dataclass(frozen=True, slots=True)
class Grid:
    """columns: labels. rows: label -> as many cells, only rows that can be trusted. others: rows that cannot.

    shifted: whether columns may not be what their labels say: a row of full length has its own mark in the wrong place,
    or most rows do not fit. block: whether these are the columns of the GPUs alone, out of rows with more cells.
    """

    columns: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]
    others: tuple[str, ...] = ()
    shifted: bool = False
    block: bool = False

    @property
    def gpus(self) -> int:
        """Highest GPU number among the columns, plus one."""
        return max((number + 1 for label in self.columns if (number := gpu_number(label)) is not None), default=0)

    def cells(self) -> Iterator[tuple[str, str, str]]:
        """Row label, column label and cell, for all cells of rows that can be trusted."""
        for row, cells in self.rows.items():
            for column, cell in zip(self.columns, cells, strict=True):
                yield row, column, cell

    def missing(self) -> tuple[str, ...]:
        """Columns that have no row of their own."""
        return tuple(label for label in self.columns if label not in self.rows and label not in self.others)


def gpu_number(label: str) -> int | None:
    """The number of "GPU3"; None for any other label."""
    match = GPU.fullmatch(label)
    return int(match[1]) if match else None


def best_grid(heads: Sequence[Sequence[str]], rows: Mapping[str, Sequence[str]], mark: str) -> Grid:
    """The rows under those column labels that most rows fit. Of heads that fit equally well the first counts.

    mark: what a row holds in its own column.
    """
    grids = [_grid(tuple(head), rows, mark) for head in heads if head and len(set(head)) == len(head)]
    return max(grids, key=lambda grid: len(grid.rows), default=Grid((), {}, tuple(rows)))


def gpu_block(head: Sequence[str], rows: Mapping[str, Sequence[str]], mark: str) -> Grid:
    """The columns of the GPUs, whatever other columns lack or hold: by the header or, without one, by each row's mark.

    Such a grid counts as shifted: a link is sure only where both rows name it alike.
    """
    gpus = {label: cells for label, cells in rows.items() if gpu_number(label) is not None}
    if head:
        place = {label: at for at, label in enumerate(head) if gpu_number(label) is not None}
    else:
        length = max((len(cells) for cells in gpus.values()), default=0)
        gpus = {label: cells for label, cells in gpus.items() if len(cells) == length and cells.count(mark) == 1}
        place = {label: cells.index(mark) for label, cells in gpus.items()}
    if not place or len(set(place.values())) < len(place):
        return Grid((), {}, tuple(rows))
    fits = {label: tuple(cells[at] for at in place.values()) for label, cells in gpus.items()
            if len(cells) > max(place.values()) and label in place and cells[place[label]] == mark}  # fmt: skip
    others = tuple(label for label in rows if gpu_number(label) is not None and label not in fits)
    return Grid(tuple(place), fits, others, shifted=True, block=True)


def _grid(columns: tuple[str, ...], rows: Mapping[str, Sequence[str]], mark: str) -> Grid:
    sound, others, shifted = {}, [], False
    for label, cells in rows.items():
        if len(cells) == len(columns) and label in columns and cells[columns.index(label)] == mark:
            sound[label] = tuple(cells)
        else:
            others.append(label)
            shifted |= len(cells) == len(columns)
    return Grid(columns, sound, tuple(others), shifted or len(others) > len(sound))
