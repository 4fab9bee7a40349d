"""Which NUMA node each GPU is on, from nvidia-smi's affinity columns or, where those say nothing, from the links."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from slurmsched.model.topology import Int8s, LinkKind
from slurmsched.topology.nvidia_rows import Cells
from slurmsched.topology.plain import apart, joined, numbered, numbers

CPU, NUMA, HBM = "cpu affinity", "numa affinity", "gpu numa id"
_USUAL = {1: (CPU,), 2: (CPU, NUMA), 3: (CPU, NUMA, HBM)}  # where the header is lost


@dataclass(frozen=True, slots=True)
class Affinity:
    """One GPU's cells as printed, "" = nothing there. has_numa: whether the table has such a column at all."""

    cpus: str = ""
    numa: str = ""
    has_numa: bool = False

    @classmethod
    def of(cls, cells: Cells, names: tuple[str, ...]) -> Affinity:
        """The cells behind the links, under the header's names. A row with fewer words than names tells nothing."""
        names = names or _USUAL.get(len([cell for cell in cells.tail if cell]), ())
        found = _placed(cells.tail, names) if cells.placed else dict(zip(names, cells.tail, strict=False))
        if not cells.placed and len(cells.tail) < len(names):
            found = {}
        return cls(found.get(CPU, ""), found.get(NUMA, ""), NUMA in names)


def _placed(tail: Sequence[str], names: tuple[str, ...]) -> dict[str, str]:
    """Cells between tabs by name. nvidia-smi puts an empty cell before the last one, and sometimes before NUMA too."""
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


def numa_nodes(affinities: Sequence[Affinity], kind: Int8s, common: Sequence[tuple[int, int]]) -> list[int]:
    """For each GPU its NUMA node, -1 = unknown.

    Numbers are the machine's where its NUMA column tells them. Older tables give CPU lists only: GPUs of one list share
    a number then. Lists that contradict the links (a container shows its own CPUs) leave the links, and what they
    do not tell apart is unknown. common: pairs of GPUs in the NUMA node of one NIC.
    """
    if any(row.has_numa for row in affinities):
        return [numa_node(row.numa) for row in affinities]
    lists = [numbers(row.cpus) for row in affinities]
    if not any(row.cpus for row in affinities):
        return [-1] * len(affinities)
    return _by_cpus(lists, kind) or _by_links(kind, common) or [-1] * len(affinities)


def numa_node(text: str) -> int:
    """The NUMA node of a cell: "1" -> 1; "0,5-11" -> 0, its CPUs' node, memory nodes behind it; -1 for anything else.

    A range such as "0-1" names no single node.
    """
    found = numbers(text) if re.fullmatch(r"[\d,-]+", text) else None
    if not found or (len(found) > 1 and found[0] + 1 in found):
        return -1
    return found[0]


def _by_cpus(lists: Sequence[tuple[int, ...] | None], kind: Int8s) -> list[int]:
    """Numbers of equal CPU lists, ascending by their first CPU; [] unless they are alike or apart, as the links are."""
    numa = apart(lists)
    return numa if _fits(numa, kind) else []


def _by_links(kind: Int8s, common: Sequence[tuple[int, int]]) -> list[int]:
    """Groups of GPUs with a socket's link between them; [] if the links do not say so, or leave a GPU alone."""
    host = (kind >= LinkKind.NODE) & (kind <= LinkKind.PIX)
    numa = numbered(joined(len(kind), [*np.argwhere(host).tolist(), *common]))
    if max(numa, default=0) < 1 or -1 in numa or not _fits(numa, kind):
        return []
    return numa


def _fits(numa: Sequence[int], kind: Int8s) -> bool:
    """Whether no pair within a group is linked across sockets."""
    pairs = combinations(range(len(numa)), 2)
    return not any(numa[i] == numa[j] and kind[i, j] == LinkKind.SYS for i, j in pairs)
