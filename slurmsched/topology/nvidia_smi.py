"""`nvidia-smi topo -m` of every age: the matrix of GPUs and NICs, whole or damaged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from slurmsched.model.topology import GpuTopology, LinkKind
from slurmsched.topology.affinity import Affinity, numa_nodes
from slurmsched.topology.grid import GPU, Grid, best_grid, gpu_block, gpu_number
from slurmsched.topology.links import Link, agreed, class_of, few_enough, switch_groups
from slurmsched.topology.nvidia_rows import NEAR, Row, cells_of, is_row, link_of, rows_of, run_of
from slurmsched.topology.plain import clean, fold, unquoted
from slurmsched.words import some

_TAIL = re.compile(r"CPU\s+Affinity|NUMA\s+Affinity|GPU\s+NUMA(?:\s+ID)?", re.IGNORECASE)
_ANY_CASE = re.compile(r"(?<!\S)gpu(?=\d)", re.IGNORECASE)
_LISTED = re.compile(r"^[ \t]*GPU (\d+): (.+?)(?: \(UUID.*)?$", re.MULTILINE)
_DEVICE = re.compile(r"^[ \t]*MIG \S+ +Device +\d+:")
_P2P = re.compile(r"^[ \t]*GPU\d+[ \t](?:.*[ \t])?(?:OK|NS|CNS|GNS|TNS|DR)[ \t]*(?:$|[ \t])", re.MULTILINE)
_NO_LINKS = "a table of `nvidia-smi topo -p2p`, which tells no links; `nvidia-smi topo -m` does"
_NIC = re.compile(r"^[ \t]*(NIC\d+):[ \t]*(\S+)", re.MULTILINE)


def read_topo(text: str, name: str = "", gpu_type: str = "") -> GpuTopology:
    """The class of node that the matrix shows; `nvidia-smi -L` beside it gives models and MIG devices.

    gpu_type: a model's name, for the bandwidth; "" = as listed. Whatever cannot be read is unknown, with a warning.
    """
    text = _upper(unquoted(clean(text)))
    rows, more = ({}, (_NO_LINKS,)) if _P2P.search(text) else rows_of(text)
    head, tail = _head(text, rows)
    grid = _grid(head, rows)
    gpus, cut = few_enough(grid.gpus)
    models, mig = listed(text, gpus)
    if not gpus and models:
        gpus, more = len(models), (*more, "no matrix of `nvidia-smi topo -m`, only the list of GPUs")
    said, weak = _said(grid, rows, gpus)
    kind, lanes, unlike = agreed(gpus, said, weak)
    nics, nic_kinds = _near(grid, gpus)
    affinities = [_affinity(rows.get(f"GPU{i}"), grid, tail) for i in range(gpus)]
    numa = numa_nodes(affinities, kind, _common_nics(grid, gpus))
    lacks = (*_lacks(grid, gpus, head), *_headless(grid, head, rows))
    return class_of(
        name, kind, lanes, gpu_type=gpu_type or _model(models), numa=numa, mig=mig, nics=nics, nic_kinds=nic_kinds,
        pcie_group=_switches(grid, gpus, kind), warnings=(*more, *cut, *lacks, *unlike),
    )  # fmt: skip


def _upper(text: str) -> str:
    """The text with the labels of nvidia-smi, where the rows of all GPUs are labelled otherwise ("gpu0", "Gpu0")."""
    labels = [line.split()[0] for line in text.splitlines() if is_row(line)]
    if any(gpu_number(label) is not None for label in labels):
        return text
    return _ANY_CASE.sub("GPU", text) if any(gpu_number(label.upper()) is not None for label in labels) else text


def nic_names(text: str) -> dict[str, str]:
    """What the NIC legend says: "NIC0" -> "mlx5_0"."""
    return dict(_NIC.findall(unquoted(clean(text))))


def listed(text: str, gpus: int) -> tuple[dict[int, str], list[bool]]:
    """GPU number -> model, as `nvidia-smi -L` lists them, and for each of so many GPUs whether MIG cuts it up."""
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


def _head(text: str, rows: Mapping[str, Row]) -> tuple[list[str], tuple[str, ...]]:
    """Labels of the link columns and names of the columns behind them, from the header; ([], ()) if there is none.

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


def _grid(head: Sequence[str], rows: Mapping[str, Row]) -> Grid:
    """The matrix, under the header's labels or, where more rows fit those, under the rows' own.

    Where more rows of GPUs fit the columns of the GPUs alone, those: whatever is wrong beside them.
    """
    grids = []
    for labels in (head, list(rows)):
        cells = {label: cells_of(row, len(labels)).links for label, row in rows.items()}
        grids.append(best_grid([labels], cells, "X"))
    whole = max(grids, key=lambda grid: len(grid.rows))
    block = gpu_block(head, {label: run_of(row) for label, row in rows.items()}, "X")
    return block if _gpu_rows(block) > _gpu_rows(whole) else whole


def _gpu_rows(grid: Grid) -> int:
    return sum(gpu_number(label) is not None for label in grid.rows)


def _said(grid: Grid, rows: Mapping[str, Row], gpus: int) -> tuple[dict[tuple[int, int], Link], set[tuple[int, int]]]:
    """What rows say of pairs of GPUs, and which of it counts only if the other row says the same.

    That is: everything where columns are shifted, and a number of lanes at the very end of its line, which may be cut.
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


def _nic_links(grid: Grid, gpus: int) -> dict[tuple[int, str], LinkKind]:
    """GPU and NIC -> what lies between them; a pair that its two rows name differently is left out."""
    found: dict[tuple[int, str], set[LinkKind]] = {}
    for row, column, cell in grid.cells():
        link, at, to = link_of(cell), gpu_number(row), gpu_number(column)
        if link is None or link[0] > LinkKind.PIX or (at is None) == (to is None):
            continue
        key = (at, column) if at is not None else (to, row)
        if key[0] is not None and key[0] < gpus:
            found.setdefault((key[0], key[1]), set()).add(link[0])
    return {key: kinds.pop() for key, kinds in found.items() if len(kinds) == 1}


def _near(grid: Grid, gpus: int) -> tuple[tuple[tuple[str, ...], ...], tuple[tuple[LinkKind, ...], ...]]:
    """For each GPU the NICs behind the same host bridge or nearer, nearest first, and how near."""
    links = _nic_links(grid, gpus)
    order = {label: at for at, label in enumerate(grid.columns)}
    near: list[list[tuple[str, LinkKind]]] = [[] for _ in range(gpus)]
    for (gpu, nic), kind in sorted(links.items(), key=lambda item: (-item[1], order[item[0][1]])):
        if kind >= NEAR:
            near[gpu].append((nic, kind))
    return tuple(tuple(nic for nic, _ in row) for row in near), tuple(tuple(kind for _, kind in row) for row in near)


def _common_nics(grid: Grid, gpus: int) -> list[tuple[int, int]]:
    """Pairs of GPUs that lie in the NUMA node of one and the same NIC."""
    by_nic: dict[str, list[int]] = {}
    for (gpu, nic), kind in _nic_links(grid, gpus).items():
        if kind >= LinkKind.NODE:
            by_nic.setdefault(nic, []).append(gpu)
    return [(near[0], other) for near in by_nic.values() for other in near[1:]]


def _switches(grid: Grid, gpus: int, kind: Any) -> list[int]:
    """Switch groups by links between GPUs and by NICs that hang on the same switch as two of them."""
    import numpy as np

    nics = [label for label in grid.columns if gpu_number(label) is None]
    wide = np.zeros((gpus + len(nics),) * 2, np.int8)
    wide[:gpus, :gpus] = kind
    for (gpu, nic), link in _nic_links(grid, gpus).items():
        wide[gpu, gpus + nics.index(nic)] = link
    return switch_groups(wide, gpus)


def _affinity(row: Row | None, grid: Grid, tail: tuple[str, ...]) -> Affinity:
    if row is None:
        return Affinity()
    columns = len(run_of(row)) if grid.block else len(grid.columns)
    return Affinity.of(cells_of(row, columns), tail)


def _lacks(grid: Grid, gpus: int, head: Sequence[str]) -> tuple[str, ...]:
    """What a damaged matrix lacks, in words."""
    if not grid.columns:
        return ("no matrix of `nvidia-smi topo -m` found",)
    warnings = []
    if grid.others:
        warnings.append(f"rows that do not fit the columns (cut or damaged), left out: {', '.join(grid.others)}")
    if missing := grid.missing():
        of_gpus = [label for label in missing if gpu_number(label) is not None]
        nics = fold(label for label in missing if label not in of_gpus)
        warnings += [f"no rows of {fold(of_gpus)}: the file is cut"] if of_gpus else []
        warnings += [f"no rows of {nics}: the file is cut"] if nics else []
    if absent := [f"GPU{i}" for i in range(gpus) if f"GPU{i}" not in grid.columns]:
        warnings.append(f"no columns of {fold(absent)}: the file is damaged")
    if lost := [label for label in head if gpu_number(label) is not None and label not in grid.columns]:
        warnings.append(f"the head names {fold(lost)}, no row does: the file is damaged")
    if beside := [label for label in head if gpu_number(label) is None and label not in grid.columns]:
        warnings.append(f"the cells of {fold(beside)} do not fit the head, left out")
    if grid.shifted and not (grid.block and not head):
        warnings.append("columns do not fit the rows: only links that both rows name alike are taken")
    return tuple(warnings)


def _headless(grid: Grid, head: Sequence[str], rows: Mapping[str, Row]) -> tuple[str, ...]:
    """What rows without a header do not tell, in words."""
    if not grid.block or head:
        return ()
    cells = [run_of(rows[label]) for label in grid.rows]
    own = {row.index("X") for row in cells}
    beside = [column for at, column in enumerate(zip(*cells, strict=True)) if at not in own]
    if any(cell.startswith("NV") for column in beside for cell in column):
        return ("no header, and no rows of some GPUs: the file is cut",)
    return (f"no header: {some(len(beside), 'column')} beside those of the GPUs left out",) if beside else ()
