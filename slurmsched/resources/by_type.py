"""GPUs by type: how many of each a node has, and how many of them surely nobody holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from slurmsched.model.columns import Bools, Int64s, Labels, made_read_only
from slurmsched.model.gres import is_mig, parse_gres
from slurmsched.model.overrides import types_of
from slurmsched.model.snapshot import Snapshot
from slurmsched.resources.allocated import AllocatedGpus, node_rows
from slurmsched.resources.job_request import request_of


@lru_cache(maxsize=1 << 10)
def whole_types(text: str) -> dict[str, int]:
    """Whole GPUs by type of a gres text in normal form; "" = of no type."""
    found: dict[str, int] = {}
    for entry in parse_gres(text):
        if entry.kind == "gpu" and not entry.mig:
            found[entry.type] = found.get(entry.type, 0) + entry.count
    return found


def only_type(text: str) -> str:
    """The type of the whole GPUs of a gres text in normal form; "" if they are of several types, or of none."""
    types = whole_types(text)
    return next(iter(types)) if len(types) == 1 else ""


def has_several_types(gpu_types: Labels) -> Bools:
    """Nodes with whole GPUs of more than one type. gpu_types: of the nodes. (N,) bool."""
    return gpu_types.map(lambda text: len(whole_types(text)) > 1, np.bool_)


@lru_cache(maxsize=64)
def surely_free(snapshot: Snapshot, gpu_type: str) -> Int64s:
    """GPUs or MIG devices of this type that nobody holds, on each node, whatever its state. (N,) int64, read-only.

    A GPU in use of which the type is not shown may be of any: it counts as one of this type.
    """
    nodes = snapshot.nodes
    has = _gpus_of_type(nodes.gpu_types, gpu_type)
    if is_mig(gpu_type):
        used = np.zeros(len(nodes), np.int64)
        for row in np.flatnonzero(has).tolist():
            shown = gpus_of_type(nodes.types_used[row], gpu_type) + gpus_of_type(nodes.types_used[row], "")
            used[row] = max(_held_by_type(snapshot).get((row, gpu_type), 0), shown)
        return made_read_only(np.clip(has - used, 0, None))
    used = nodes.gpus_used.astype(np.int64)
    for row in np.flatnonzero(has_several_types(nodes.gpu_types) & (has > 0)).tolist():
        used[row] = _used_by_type(snapshot, row)[gpu_type]
    return made_read_only(np.clip(has - used, 0, None))


@lru_cache(maxsize=1 << 12)
def gpus_of_type(text: str, gpu_type: str) -> int:
    """GPUs or MIG devices of this type in a gres text; "" = those without a type."""
    return sum(entry.count for entry in parse_gres(text) if entry.kind == "gpu" and entry.type == gpu_type)


def _gpus_of_type(gpu_types: Labels, gpu_type: str) -> Int64s:
    return gpu_types.map(lambda text: gpus_of_type(text, gpu_type), np.int64)


def _used_by_type(snapshot: Snapshot, row: int) -> dict[str, int]:
    """GPUs of each type that are or may be in use on a node of several."""
    allocated, shown = _held_by_type(snapshot), whole_types(snapshot.nodes.types_used[row])
    found = {
        name: max(allocated.get((row, name), 0), shown.get(name, 0))
        for name in whole_types(snapshot.nodes.gpu_types[row])
    }
    unknown = max(int(snapshot.nodes.gpus_used[row]) - sum(found.values()), 0)
    return {name: gpus + unknown for name, gpus in found.items()}


@lru_cache(maxsize=2)
def _held_by_type(snapshot: Snapshot) -> dict[tuple[int, str], int]:
    """GPUs and MIG devices that jobs hold, by row of the node and type."""
    allocated, found = snapshot.allocations, dict[tuple[int, str], int]()
    for row, gpu_type, gpus in zip(
        node_rows(snapshot).tolist(), allocated.gpu_type, allocated.gpus.tolist(), strict=True
    ):
        found[row, gpu_type] = found.get((row, gpu_type), 0) + gpus
    return found


def one_type(snapshot: Snapshot, row: int) -> str:
    """The GPU type that a job asks for, if it asks for one alone and not for whole nodes; "" for any other."""
    request = snapshot.jobs.gpu_request[row]
    named = types_of(request)
    return next(iter(named)) if len(named) == 1 and "," not in request and not request_of(snapshot, row).whole else ""


def allocated_of_type(snapshot: Snapshot, gpu_type: str) -> AllocatedGpus:
    """What holding jobs hold, on nodes of several types of this type alone."""
    allocated, node = snapshot.allocations, node_rows(snapshot)
    several = np.append(has_several_types(snapshot.nodes.gpu_types), False)
    gpus = np.where(several[node] & ~allocated.gpu_type.isin([gpu_type]), 0, allocated.gpus)
    return AllocatedGpus.of(replace(snapshot, allocations=allocated.with_columns(gpus=gpus)))


@dataclass(slots=True, eq=False)
class FreeByType:
    """GPUs by type on nodes that have several types, as the cycle goes on and gives them away.

    several: (N,) bool, these nodes.
    known: (N,) bool, those of them where it is known how many of each type are free.
    has, free: (N,) int64 by type, 0 on other nodes; free counts what surely nobody holds (see surely_free).
    held: what each job holds there, by job id and row of the node.
    """

    several: Bools
    known: Bools
    has: dict[str, Int64s]
    free: dict[str, Int64s]
    allocated: dict[tuple[int, int], Counter[str]]

    @classmethod
    def of(cls, snapshot: Snapshot) -> FreeByType:
        """Not known where jobs hold GPUs that are not seen, or are not said to be of a type."""
        nodes = snapshot.nodes
        several = has_several_types(nodes.gpu_types)
        found = cls(several, several & (nodes.gpus_used == 0), {}, {}, {})
        if not several.any():
            return found
        names = {name for text in nodes.gpu_types.names if len(types := whole_types(text)) > 1 for name in types}
        for name in sorted(names):
            found.has[name] = np.where(several, _gpus_of_type(nodes.gpu_types, name), 0)
            found.free[name] = np.where(several, surely_free(snapshot, name), 0)
        allocated, used = snapshot.allocations, np.zeros(len(nodes), np.int64)
        rows = node_rows(snapshot).tolist()
        for job_id, node, name, gpus in zip(
            allocated.job_id.tolist(), rows, allocated.gpu_type, allocated.gpus.tolist(), strict=True
        ):
            if node >= 0 and several[node] and not is_mig(name):
                found.allocated.setdefault((job_id, node), Counter())[name] += gpus
                used[node] += gpus if name in found.has else 0
        found.known = several & (used == nodes.gpus_used)
        return found

    def able(self, gpu_type: str, gpus: Int64s) -> Bools:
        """Those of the nodes that are known and could hold that many of this type each. gpus: (N,). (N,) bool."""
        return self.known & self.could(gpu_type, gpus)

    def could(self, gpu_type: str, gpus: Int64s) -> Bools:
        """The same, whether or not it is known what is free there. (N,) bool."""
        return self.has[gpu_type] >= gpus if gpu_type in self.has else np.zeros_like(self.known)

    def within(self, gpus: Int64s, gpu_type: str) -> Int64s:
        """Free GPUs of all nodes, of those of several types the ones of this type. gpus: (N,) of any. (N,) int64."""
        return np.where(self.several, self.free[gpu_type], gpus) if gpu_type in self.free else gpus

    def give(self, job_id: int, node: int) -> None:
        """A job gives back what it holds of a node."""
        for name, gpus in self.allocated.get((job_id, node), {}).items():
            if name in self.free:
                self.free[name][node] += gpus

    def take(self, nodes: Int64s, gpus: Int64s, gpu_type: str) -> None:
        """A job takes that many of each of these nodes. Of "" it may be any type: then nobody knows which are free.

        gpus: (N,).
        """
        if gpu_type in self.free:
            self.free[gpu_type][nodes] -= gpus[nodes]
        elif not gpu_type:
            self.known[nodes] = False
            for free in self.free.values():
                free[nodes] -= gpus[nodes]
