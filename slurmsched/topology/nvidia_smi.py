"""`nvidia-smi topo -m` of any age: the matrix of GPUs and NICs, complete or damaged, and the NUMA node of each GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, takewhile
from typing import Any

import numpy as np

from slurmsched.model.columns import Int8s
from slurmsched.model.gpu_topology import GpuTopology, LinkKind
from slurmsched.plain_text import pluralize
from slurmsched.topology.gpu_links import Link, agreed_links, class_of, limited_gpus, switch_groups
from slurmsched.topology.topology_text import (
    GPU,
    LabelledTable,
    best_table,
    clean,
    connected_groups,
    disjoint_groups,
    fold_names,
    gpu_block,
    gpu_number,
    number_groups,
    numbers_or_none,
    unquoted,
)

_CELL = r"(?:X|NV\d{1,3}|C2C|PIX|PXB|PHB|NODE|SYS|SOC)"
_GPU_LABEL = re.compile(r"GPU\d")
_LINK = re.compile(_CELL)
_LINKS = re.compile(f"(?:{_CELL})+")  # cells may run together: "NODENODE", "PIXPIX"
_ROW = re.compile(rf"[ \t]*(\S+)((?:[ \t]+){_LINKS.pattern}(?![^ \t]).*)")
_KINDS = {"PIX": LinkKind.PIX, "PXB": LinkKind.PXB, "PHB": LinkKind.PHB, "NODE": LinkKind.NODE, "SYS": LinkKind.SYS,
          "SOC": LinkKind.SYS}  # fmt: skip
NEAR = LinkKind.PHB  # a NIC behind the same host bridge as the GPU, or nearer


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A row of the matrix.

    text: everything behind the label.
    ragged: whether the table has meaningless empty cells between its columns."""

    text: str
    ragged: bool = False


@dataclass(frozen=True, slots=True)
class RowCells:
    """The cells of a row.

    links: the link cells.
    tail: the cells behind them.
    placed: whether the place of a tail cell shows its column."""

    links: tuple[str, ...]
    tail: tuple[str, ...]
    placed: bool


def link_of(cell: str) -> Link | None:
    """Kind and lanes of a cell; None for "X", an empty cell or other text."""
    if cell in _KINDS:
        return _KINDS[cell], 0
    lanes = int(cell[2:]) if re.fullmatch(r"NV\d{1,3}", cell) else 0
    return (LinkKind.NVLINK, lanes) if lanes else None


def is_row(line: str) -> bool:
    """Whether the line is a row of the matrix."""
    return _ROW.fullmatch(line) is not None


def rows_of(text: str) -> tuple[dict[str, MatrixRow], tuple[str, ...]]:
    """Label -> row of the first matrix up to its legend, and warnings. Rows broken by the terminal are joined."""
    texts: dict[str, str] = {}
    label, again = "", 0
    for line in text.splitlines():
        match = _ROW.fullmatch(line)
        if texts and (re.match(r"[ \t]*(?:NIC )?Legend", line) or (not match and len(_GPU_LABEL.findall(line)) > 1)):
            again += bool(match is None and _GPU_LABEL.search(line))  # a second head is that of another machine
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
    return {name: MatrixRow(row, ragged) for name, row in texts.items()}, warnings


def row_cells(row: MatrixRow, columns: int) -> RowCells:
    """The cells of the row, if the matrix has this many link columns. Tabs separate cells, if there are any."""
    run = list(_run(row.text))
    links = tuple(cell[0] for cell in run)
    if len(run) < columns and "\t" in row.text and not row.ragged:
        cells = [cell.strip() for cell in row.text.split("\t")[1:]]
        if len(cells) >= columns and all(not cell or _LINK.fullmatch(cell) for cell in cells[:columns]):
            return RowCells(tuple(cells[:columns]), tuple(cells[columns:]), True)
    if len(run) < columns or not run:
        return RowCells(links, (), False)
    behind = row.text[run[columns - 1].end() :] if columns else row.text
    if "\t" in behind and not row.ragged:
        return RowCells(links, tuple(cell.strip() for cell in behind.split("\t")[1:]), True)
    return RowCells(links, tuple(behind.split()), False)


def run_of(row: MatrixRow) -> tuple[str, ...]:
    """The link cells at the beginning of the row."""
    return tuple(cell[0] for cell in _run(row.text))


def _run(text: str) -> Iterator[re.Match[str]]:
    words = takewhile(lambda word: _LINKS.fullmatch(word[0]), re.finditer(r"\S+", text))
    return (cell for word in words for cell in _LINK.finditer(text, word.start(), word.end()))


def _ragged(texts: Sequence[str]) -> bool:
    """Whether there are empty cells between link cells, although a row has at least as many links as there are rows."""
    for text in texts:
        cells = [cell.strip() for cell in text.split("\t")[1:]]
        last = max((at for at, cell in enumerate(cells) if _LINK.fullmatch(cell)), default=0)
        links = sum(bool(_LINK.fullmatch(word)) for word in text.split())
        if links >= len(texts) and "" in cells[:last]:
            return True
    return False


# The NUMA node of each GPU.

CPU, NUMA, HBM = "cpu affinity", "numa affinity", "gpu numa id"
_USUAL = {1: (CPU,), 2: (CPU, NUMA), 3: (CPU, NUMA, HBM)}  # where the header is lost


@dataclass(frozen=True, slots=True)
class GpuAffinity:
    """The affinity cells of one GPU as printed, "" = empty. has_numa: whether the table has a NUMA column."""

    cpus: str = ""
    numa: str = ""
    has_numa: bool = False

    @classmethod
    def of(cls, cells: RowCells, names: tuple[str, ...]) -> GpuAffinity:
        """The cells behind the links under the names of the header. A row with fewer words than names is ignored."""
        names = names or _USUAL.get(len([cell for cell in cells.tail if cell]), ())
        found = _cells_by_name(cells.tail, names) if cells.placed else dict(zip(names, cells.tail, strict=False))
        if not cells.placed and len(cells.tail) < len(names):
            found = {}
        return cls(found.get(CPU, ""), found.get(NUMA, ""), NUMA in names)


def _cells_by_name(tail: Sequence[str], names: tuple[str, ...]) -> dict[str, str]:
    """Cells between tabs, by name. nvidia-smi prints an empty cell before the last one, and sometimes before NUMA."""
    found: dict[str, str] = {}
    at = 0
    if CPU in names:
        found[CPU] = tail[0] if tail else ""
        at = 1
    rest = [cell for cell in tail[at:] if cell]
    if NUMA in names and rest:
        whole = len(rest) == len(names) - at
        found[NUMA] = rest[0] if whole else tail[at]
    return found


def numa_nodes(affinities: Sequence[GpuAffinity], kind: Int8s, common: Sequence[tuple[int, int]]) -> list[int]:
    """The NUMA node of each GPU, -1 = unknown.

    If the table has a NUMA column, numbers are those of the machine. Older tables have only CPU lists: GPUs with the
    same list share a number. If the lists contradict the links (a container shows its own CPUs), the links decide.

    common: pairs of GPUs in the NUMA node of one NIC.
    """
    if any(row.has_numa for row in affinities):
        return [numa_node(row.numa) for row in affinities]
    lists = [numbers_or_none(row.cpus) for row in affinities]
    if not any(row.cpus for row in affinities):
        return [-1] * len(affinities)
    return _by_cpus(lists, kind) or _by_links(kind, common) or [-1] * len(affinities)


def numa_node(text: str) -> int:
    """The NUMA node of a cell: 1 for "1"; 0 for "0,5-11" (memory nodes follow the node of its CPUs); else -1.

    A range such as "0-1" is no single node.
    """
    found = numbers_or_none(text) if re.fullmatch(r"[\d,-]+", text) else None
    if not found or (len(found) > 1 and found[0] + 1 in found):
        return -1
    return found[0]


def _by_cpus(lists: Sequence[tuple[int, ...] | None], kind: Int8s) -> list[int]:
    """Numbers of equal CPU lists, ascending by first CPU; [] if lists overlap or contradict the links."""
    numa = disjoint_groups(lists)
    return numa if _fits_links(numa, kind) else []


def _by_links(kind: Int8s, common: Sequence[tuple[int, int]]) -> list[int]:
    """Groups of GPUs that are linked within a socket; [] if there is no such grouping, or a GPU is alone."""
    host = (kind >= LinkKind.NODE) & (kind <= LinkKind.PIX)
    numa = number_groups(connected_groups(len(kind), [*np.argwhere(host).tolist(), *common]))
    if max(numa, default=0) < 1 or -1 in numa or not _fits_links(numa, kind):
        return []
    return numa


def _fits_links(numa: Sequence[int], kind: Int8s) -> bool:
    """Whether no pair within a group is linked across sockets."""
    pairs = combinations(range(len(numa)), 2)
    return not any(numa[i] == numa[j] and kind[i, j] == LinkKind.SYS for i, j in pairs)


# `nvidia-smi topo -m` of every age: the matrix of GPUs and NICs, whole or damaged.

_TAIL = re.compile(r"CPU\s+Affinity|NUMA\s+Affinity|GPU\s+NUMA(?:\s+ID)?", re.IGNORECASE)
_ANY_CASE = re.compile(r"(?<!\S)gpu(?=\d)", re.IGNORECASE)
_LISTED = re.compile(r"^[ \t]*GPU (\d+): (.+?)(?: \(UUID.*)?$", re.MULTILINE)
_DEVICE = re.compile(r"^[ \t]*MIG \S+ +Device +\d+:")
_P2P = re.compile(r"^[ \t]*GPU\d+[ \t](?:.*[ \t])?(?:OK|NS|CNS|GNS|TNS|DR)[ \t]*(?:$|[ \t])", re.MULTILINE)
_NO_LINKS = "a table of `nvidia-smi topo -p2p`, which has no links; use `nvidia-smi topo -m`"
_NIC = re.compile(r"^[ \t]*(NIC\d+):[ \t]*(\S+)", re.MULTILINE)


def read_topo(text: str, name: str = "", gpu_type: str = "") -> GpuTopology:
    """The class of node of the matrix. `nvidia-smi -L` in the same text gives models and MIG devices.

    gpu_type: name of the model, for the bandwidth; "" = as listed.
    What cannot be read is unknown; a warning says so.
    """
    text = _upper(unquoted(clean(text)))
    rows, more = ({}, (_NO_LINKS,)) if _P2P.search(text) else rows_of(text)
    head, tail = _head(text, rows)
    grid = _grid(head, rows)
    gpus, cut = limited_gpus(grid.gpus)
    models, mig = listed_gpus(text, gpus)
    if not gpus and models:
        gpus, more = len(models), (*more, "no matrix of `nvidia-smi topo -m`, only the list of GPUs")
    said, weak = _links_by_row(grid, rows, gpus)
    kind, lanes, unlike = agreed_links(gpus, said, weak)
    nics, nic_kinds = _near_nics(grid, gpus)
    affinities = [_affinity(rows.get(f"GPU{i}"), grid, tail) for i in range(gpus)]
    numa = numa_nodes(affinities, kind, _common_nics(grid, gpus))
    lacks = (*_lacks(grid, gpus, head), *_headless(grid, head, rows))
    return class_of(
        name, kind, lanes, gpu_type=gpu_type or _model(models), numa=numa, mig=mig, nics=nics, nic_kinds=nic_kinds,
        pcie_group=_switches(grid, gpus, kind), warnings=(*more, *cut, *lacks, *unlike),
    )  # fmt: skip


def _upper(text: str) -> str:
    """The text with labels as nvidia-smi prints them, if all rows have others ("gpu0", "Gpu0")."""
    labels = [line.split()[0] for line in text.splitlines() if is_row(line)]
    if any(gpu_number(label) is not None for label in labels):
        return text
    return _ANY_CASE.sub("GPU", text) if any(gpu_number(label.upper()) is not None for label in labels) else text


def nic_names(text: str) -> dict[str, str]:
    """The NIC legend: "NIC0" -> "mlx5_0"."""
    return dict(_NIC.findall(unquoted(clean(text))))


def listed_gpus(text: str, gpus: int) -> tuple[dict[int, str], list[bool]]:
    """GPU number -> model, from `nvidia-smi -L`; and for each GPU whether it is cut into MIG devices."""
    models = {int(number): model for number, model in _LISTED.findall(text)}
    mig, last = set(), -1
    for line in text.splitlines():
        if match := _LISTED.match(line):
            last = int(match[1])
        elif _DEVICE.match(line):
            mig.add(last)
    return models, [i in mig for i in range(gpus or len(models))]


def _model(models: Mapping[int, str]) -> str:
    return next(iter(models.values())) if len(set(models.values())) == 1 else ""


def _head(text: str, rows: Mapping[str, MatrixRow]) -> tuple[list[str], tuple[str, ...]]:
    """Labels of the link columns and names of the columns behind them, from the header; ([], ()) without one.

    Labels may run together ("GPU0GPU1", "mlx5_2mlx5_3"): those of the rows tell them apart.
    """
    for line in text.splitlines():
        if is_row(line) or not re.search(r"GPU\d", line) or re.search(r"GPU \d|GPU\d+:", line):
            continue
        tail = _TAIL.search(line)
        known = sorted((re.escape(label) for label in rows), key=len, reverse=True)
        label = "|".join([*(f"{label}(?!\\d)" for label in known), GPU.pattern, r"(?:NIC|mlx\d+_)\d+", r"\S+"])
        names = tuple(" ".join(found.split()).lower() for found in _TAIL.findall(line))
        labels = [match[0] for match in re.finditer(label, line[: tail.start() if tail else len(line)])]
        return labels, names
    return [], ()


def _grid(head: Sequence[str], rows: Mapping[str, MatrixRow]) -> LabelledTable:
    """The matrix under the labels of the header or of its rows, whichever more rows fit.

    If more rows of GPUs fit only the columns of the GPUs, those columns alone.
    """
    grids = []
    for labels in (head, list(rows)):
        cells = {label: row_cells(row, len(labels)).links for label, row in rows.items()}
        grids.append(best_table([labels], cells, "X"))
    whole = max(grids, key=lambda grid: len(grid.rows))
    block = gpu_block(head, {label: run_of(row) for label, row in rows.items()}, "X")
    return block if _gpu_rows(block) > _gpu_rows(whole) else whole


def _gpu_rows(grid: LabelledTable) -> int:
    return sum(gpu_number(label) is not None for label in grid.rows)


def _links_by_row(
    grid: LabelledTable, rows: Mapping[str, MatrixRow], gpus: int
) -> tuple[dict[tuple[int, int], Link], set[tuple[int, int]]]:
    """Links of pairs by row, and the pairs that count only if the other row agrees.

    These are all pairs if columns are shifted, and a number of lanes at the end of its line, which may be cut.
    """
    said, weak = {}, set()
    for label, column, cell in grid.cells():
        i, j, link = gpu_number(label), gpu_number(column), link_of(cell)
        if i is None or j is None or link is None or max(i, j) >= gpus or i == j:
            continue
        said[i, j] = link
        at_end = column == grid.columns[-1] and rows[label].text.rstrip(" \t").endswith(cell)
        if grid.shifted or (at_end and link[0] == LinkKind.NVLINK):
            weak.add((i, j))
    return said, weak


def _nic_links(grid: LabelledTable, gpus: int) -> dict[tuple[int, str], LinkKind]:
    """GPU and NIC -> their link. A pair whose two rows differ is left out."""
    found: dict[tuple[int, str], set[LinkKind]] = {}
    for row, column, cell in grid.cells():
        link, at, to = link_of(cell), gpu_number(row), gpu_number(column)
        if link is None or link[0] > LinkKind.PIX or (at is None) == (to is None):
            continue
        key = (at, column) if at is not None else (to, row)
        if key[0] is not None and key[0] < gpus:
            found.setdefault((key[0], key[1]), set()).add(link[0])
    return {key: kinds.pop() for key, kinds in found.items() if len(kinds) == 1}


def _near_nics(grid: LabelledTable, gpus: int) -> tuple[tuple[tuple[str, ...], ...], tuple[tuple[LinkKind, ...], ...]]:
    """For each GPU the NICs behind the same host bridge or nearer, nearest first, and their links."""
    links = _nic_links(grid, gpus)
    order = {label: at for at, label in enumerate(grid.columns)}
    near: list[list[tuple[str, LinkKind]]] = [[] for _ in range(gpus)]
    for (gpu, nic), kind in sorted(links.items(), key=lambda item: (-item[1], order[item[0][1]])):
        if kind >= NEAR:
            near[gpu].append((nic, kind))
    return tuple(tuple(nic for nic, _ in row) for row in near), tuple(tuple(kind for _, kind in row) for row in near)


def _common_nics(grid: LabelledTable, gpus: int) -> list[tuple[int, int]]:
    """Pairs of GPUs that lie in the NUMA node of one and the same NIC."""
    by_nic: dict[str, list[int]] = {}
    for (gpu, nic), kind in _nic_links(grid, gpus).items():
        if kind >= LinkKind.NODE:
            by_nic.setdefault(nic, []).append(gpu)
    return [(near[0], other) for near in by_nic.values() for other in near[1:]]


def _switches(grid: LabelledTable, gpus: int, kind: Any) -> list[int]:
    """Switch groups by links between GPUs, and by NICs on the same switch as two of them."""
    import numpy as np

    nics = [label for label in grid.columns if gpu_number(label) is None]
    wide = np.zeros((gpus + len(nics),) * 2, np.int8)
    wide[:gpus, :gpus] = kind
    for (gpu, nic), link in _nic_links(grid, gpus).items():
        wide[gpu, gpus + nics.index(nic)] = link
    return switch_groups(wide, gpus)


def _affinity(row: MatrixRow | None, grid: LabelledTable, tail: tuple[str, ...]) -> GpuAffinity:
    if row is None:
        return GpuAffinity()
    columns = len(run_of(row)) if grid.block else len(grid.columns)
    return GpuAffinity.of(row_cells(row, columns), tail)


def _lacks(grid: LabelledTable, gpus: int, head: Sequence[str]) -> tuple[str, ...]:
    """Warnings about what a damaged matrix lacks."""
    if not grid.columns:
        return ("no matrix of `nvidia-smi topo -m` found",)
    warnings = []
    if grid.others:
        warnings.append(f"rows that do not fit the columns (cut or damaged), left out: {', '.join(grid.others)}")
    if missing := grid.missing():
        of_gpus = [label for label in missing if gpu_number(label) is not None]
        nics = fold_names(label for label in missing if label not in of_gpus)
        warnings += [f"no rows of {fold_names(of_gpus)}: the file is cut"] if of_gpus else []
        warnings += [f"no rows of {nics}: the file is cut"] if nics else []
    if absent := [f"GPU{i}" for i in range(gpus) if f"GPU{i}" not in grid.columns]:
        warnings.append(f"no columns of {fold_names(absent)}: the file is damaged")
    if lost := [label for label in head if gpu_number(label) is not None and label not in grid.columns]:
        warnings.append(f"the head names {fold_names(lost)}, no row does: the file is damaged")
    if beside := [label for label in head if gpu_number(label) is None and label not in grid.columns]:
        warnings.append(f"the cells of {fold_names(beside)} do not fit the head, left out")
    if grid.shifted and not (grid.block and not head):
        warnings.append("columns do not fit the rows: only links that both rows name alike are taken")
    return tuple(warnings)


def _headless(grid: LabelledTable, head: Sequence[str], rows: Mapping[str, MatrixRow]) -> tuple[str, ...]:
    """Warnings about what is lost without a header."""
    if not grid.block or head:
        return ()
    cells = [run_of(rows[label]) for label in grid.rows]
    own = {row.index("X") for row in cells}
    beside = [column for at, column in enumerate(zip(*cells, strict=True)) if at not in own]
    if any(cell.startswith("NV") for column in beside for cell in column):
        return ("no header, and no rows of some GPUs: the file is cut",)
    return (f"no header: {pluralize(len(beside), 'column')} beside those of the GPUs left out",) if beside else ()
