"""Rows of nvidia-smi's matrix: label, link cells, and what comes behind them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from slurmsched.model.topology import LinkKind
from slurmsched.topology.links import Link

_CELL = r"(?:X|NV\d{1,3}|C2C|PIX|PXB|PHB|NODE|SYS|SOC)"
_GPU = re.compile(r"GPU\d")
_LINK = re.compile(_CELL)
_LINKS = re.compile(f"(?:{_CELL})+")  # cells may run together: "NODENODE", "PIXPIX"
_ROW = re.compile(rf"[ \t]*(\S+)((?:[ \t]+){_LINKS.pattern}(?![^ \t]).*)")
_KINDS = {"PIX": LinkKind.PIX, "PXB": LinkKind.PXB, "PHB": LinkKind.PHB, "NODE": LinkKind.NODE, "SYS": LinkKind.SYS,
          "SOC": LinkKind.SYS}  # fmt: skip
NEAR = LinkKind.PHB  # a NIC behind the same host bridge as the GPU, or nearer


@dataclass(frozen=True, slots=True)
class Row:
    """text: all behind the label. ragged: whether the table has empty cells between its columns, which mean nothing."""

    text: str
    ragged: bool = False


@dataclass(frozen=True, slots=True)
class Cells:
    """links: the link cells. tail: the cells behind them. placed: whether a tail's place tells its column."""

    links: tuple[str, ...]
    tail: tuple[str, ...]
    placed: bool


def link_of(cell: str) -> Link | None:
    """Kind and lanes of a cell; None for "X", an empty cell or anything else."""
    if cell in _KINDS:
        return _KINDS[cell], 0
    lanes = int(cell[2:]) if re.fullmatch(r"NV\d{1,3}", cell) else 0
    return (LinkKind.NVLINK, lanes) if lanes else None


def is_row(line: str) -> bool:
    """Whether the line is a row of the matrix."""
    return _ROW.fullmatch(line) is not None


def rows_of(text: str) -> tuple[dict[str, Row], tuple[str, ...]]:
    """Label -> row of the first matrix, up to its legend, and warnings. A row that the terminal broke is joined."""
    texts: dict[str, str] = {}
    label, again = "", 0
    for line in text.splitlines():
        match = _ROW.fullmatch(line)
        if texts and (re.match(r"[ \t]*(?:NIC )?Legend", line) or (not match and len(_GPU.findall(line)) > 1)):
            again += bool(match is None and _GPU.search(line))  # a second head is that of another machine
            break
        if match is None:
            continue
        if _LINKS.fullmatch(match[1]):
            texts[label] = f"{texts.get(label, '')}\t{line.strip()}" if label else ""
        elif match[1] in texts:
            label, again = "", again + 1
        else:
            label = match[1]
            texts[label] = match[2]
    texts.pop("", None)
    ragged = _ragged(list(texts.values()))
    warnings = ("more rows of the same names, or a second table, left out",) if again else ()
    return {name: Row(row, ragged) for name, row in texts.items()}, warnings


def cells_of(row: Row, columns: int) -> Cells:
    """The row's cells, if the matrix has so many link columns. Tabs separate cells, where there are any."""
    run = list(_run(row.text))
    links = tuple(cell[0] for cell in run)
    if len(run) < columns and "\t" in row.text and not row.ragged:
        cells = [cell.strip() for cell in row.text.split("\t")[1:]]
        if len(cells) >= columns and all(not cell or _LINK.fullmatch(cell) for cell in cells[:columns]):
            return Cells(tuple(cells[:columns]), tuple(cells[columns:]), True)
    if len(run) < columns or not run:
        return Cells(links, (), False)
    behind = row.text[run[columns - 1].end() :] if columns else row.text
    if "\t" in behind and not row.ragged:
        return Cells(links, tuple(cell.strip() for cell in behind.split("\t")[1:]), True)
    return Cells(links, tuple(behind.split()), False)


def run_of(row: Row) -> tuple[str, ...]:
    """The link cells that the row begins with, however many there are."""
    return tuple(cell[0] for cell in _run(row.text))


def _run(text: str) -> Iterator[re.Match[str]]:
    words = takewhile(lambda word: _LINKS.fullmatch(word[0]), re.finditer(r"\S+", text))
    return (cell for word in words for cell in _LINK.finditer(text, word.start(), word.end()))


def _ragged(texts: Sequence[str]) -> bool:
    """Whether empty cells lie between link cells that are as many as there are rows or more."""
    for text in texts:
        cells = [cell.strip() for cell in text.split("\t")[1:]]
        last = max((at for at, cell in enumerate(cells) if _LINK.fullmatch(cell)), default=0)
        links = sum(bool(_LINK.fullmatch(word)) for word in text.split())
        if links >= len(texts) and "" in cells[:last]:
            return True
    return False
