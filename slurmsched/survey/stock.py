"""GPUs of each node now: what is free, which they are, and how many of them are linked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from slurmsched.model import Nodes, Snapshot
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.gres import parse_gres
from slurmsched.placements.gpu_stock import bit_counts, class_of, class_rows, whole_gpus
from slurmsched.resources.held import node_rows
from slurmsched.survey.sets import largest_linked

OPEN, BOOT, DRAINED, DOWN, UNREAD = "open", "after a boot", "drained", "down", "used GPUs cannot be read"
COUNTS_ONLY = "Slurm shows counts only"
NO_WIRING = "wiring unknown"
SEVERAL = "several types"


@dataclass(frozen=True, slots=True)
class Part:
    """The whole GPUs of one type on one node. node: row of snapshot.nodes. standing: OPEN, BOOT (it takes jobs after a
    boot), DRAINED, DOWN or UNREAD (nobody can tell how many are used).

    used: held by jobs, also in part; 0 on a node that is DOWN or UNREAD. mask: which are free, None = not known.
    linked: the most free GPUs that are linked, None = not known; why: then why.
    """

    node: int
    gpu_type: str
    gpus: int
    used: int
    standing: str
    mask: int | None
    linked: int | None
    why: str = ""

    @property
    def left(self) -> int:
        """GPUs that no job holds, whether or not a job could have them."""
        return self.gpus - self.used

    @property
    def free(self) -> int:
        """GPUs that a job could have now."""
        return self.left if self.standing == OPEN else 0

    @property
    def boot(self) -> int:
        """GPUs that a job could have after a boot."""
        return self.left if self.standing == BOOT else 0


@dataclass(frozen=True, slots=True)
class Mig:
    """The MIG devices of one type on one node; free: of nodes that take jobs now."""

    node: int
    gpu_type: str
    devices: int
    free: int


def free_masks(snapshot: Snapshot) -> tuple[Int64s, Bools]:
    """Whole GPUs of each node that no job holds, as masks, and where that is known. Both (N,).

    It is not where Slurm tells how many GPUs are held but not which.
    """
    nodes = snapshot.nodes
    known = (bit_counts(nodes.gpu_mask_used) == nodes.gpus_used) & (nodes.gpus < 64)
    whole = whole_gpus(snapshot)
    return np.where(known, whole & ~nodes.gpu_mask_used, 0), known & (nodes.gpu_mask_used & ~whole == 0)


def parts(snapshot: Snapshot) -> Iterator[Part]:
    """Every node that has whole GPUs, by type, in the order of nodes."""
    nodes, used = snapshot.nodes, snapshot.nodes.gpu_use()["allocated"].tolist()
    masks, known = free_masks(snapshot)
    classes, held, stands = class_rows(snapshot), _held(snapshot), standings(nodes)
    for row in np.flatnonzero(nodes.gpus > 0).tolist():
        standing = stands[row]
        kinds = whole_types(nodes.gpu_types[row]) or {"": int(nodes.gpus[row])}
        by_type = _taken(snapshot, row, kinds, held) if len(kinds) > 1 else {}
        for gpu_type, gpus in kinds.items():
            if len(kinds) > 1:
                taken = 0 if standing in (DOWN, UNREAD) else min(gpus, by_type[gpu_type])
                yield Part(row, gpu_type, gpus, taken, standing, None, None, SEVERAL)
                continue
            mask = int(masks[row]) if known[row] else None
            some = standing in (OPEN, BOOT) and gpus > used[row]
            linked, why = _linked(snapshot, int(classes[row]), mask) if some else (0, "")
            yield Part(row, gpu_type, gpus, used[row], standing, mask, linked, why)


def _taken(snapshot: Snapshot, row: int, kinds: Iterable[str], held: Mapping[tuple[int, str], int]) -> dict[str, int]:
    """GPUs of each type that are in use on a node of several. One of which the type is not told may be of any."""
    told = whole_types(snapshot.nodes.types_used[row])
    found = {kind: max(held.get((row, kind), 0), told.get(kind, 0)) for kind in kinds}
    rest = max(int(snapshot.nodes.gpus_used[row]) - sum(found.values()), 0)
    return {kind: gpus + rest for kind, gpus in found.items()}


@lru_cache(maxsize=2)
def standings(nodes: Nodes) -> tuple[str, ...]:
    """Of each node whether jobs could have its GPUs: OPEN, BOOT, DRAINED, DOWN or UNREAD."""
    rules = (nodes.down, DOWN), (nodes.gpus_unread, UNREAD), (nodes.draining, DRAINED), (nodes.after_boot, BOOT)
    return tuple(np.select([mask for mask, _ in rules], [name for _, name in rules], OPEN).tolist())


def migs(snapshot: Snapshot) -> Iterator[Mig]:
    """Every node that has MIG devices, by type."""
    held, closed, boots = _held(snapshot), snapshot.nodes.closed, snapshot.nodes.after_boot
    for row, text in enumerate(snapshot.nodes.gpu_types):
        for entry in parse_gres(text):
            if entry.mig:
                used = max(held.get((row, entry.type), 0), _migs_used(snapshot.nodes.types_used[row], entry.type))
                left = 0 if closed[row] or boots[row] else max(0, entry.count - used)
                yield Mig(row, entry.type, entry.count, left)


def _migs_used(text: str, mig_type: str) -> int:
    """MIG devices of a type in what Slurm says is used; those without a type may be of any."""
    return sum(entry.count for entry in parse_gres(text) if entry.kind == "gpu" and entry.type in (mig_type, ""))


def gpu_types(snapshot: Snapshot) -> frozenset[str]:
    """GPU types of the cluster as Slurm names them, those of MIG devices too."""
    return frozenset(entry.type for text in set(snapshot.nodes.gpu_types) for entry in parse_gres(text) if entry.type)


@lru_cache(maxsize=1 << 10)
def whole_types(text: str) -> dict[str, int]:
    """Whole GPUs by type of a gres text in normal form; "" = of no type."""
    found: dict[str, int] = {}
    for entry in parse_gres(text):
        if entry.kind == "gpu" and not entry.mig:
            found[entry.type] = found.get(entry.type, 0) + entry.count
    return found


def _linked(snapshot: Snapshot, row: int, mask: int | None) -> tuple[int | None, str]:
    one = class_of(snapshot.topology, row)
    if one is None or not one.known:
        return None, NO_WIRING
    return (None, COUNTS_ONLY) if mask is None else (largest_linked(one, mask), "")


def _held(snapshot: Snapshot) -> dict[tuple[int, str], int]:
    """GPUs and MIG devices held, by row of the node and type."""
    held, found = snapshot.allocations, dict[tuple[int, str], int]()
    for row, gpu_type, gpus in zip(node_rows(snapshot).tolist(), held.gpu_type, held.gpus.tolist(), strict=True):
        found[row, gpu_type] = found.get((row, gpu_type), 0) + gpus
    return found
