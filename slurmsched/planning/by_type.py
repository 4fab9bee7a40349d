"""GPUs by type on nodes that have several: which are free, and what a job that asks for one of them can get there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.wants import types_of
from slurmsched.placements.candidates import Held, node_rows


def one_type(snapshot: Snapshot, row: int) -> str:
    """The GPU type that a job asks for, if it asks for one alone and not for whole nodes; "" for any other."""
    request = snapshot.jobs.gpu_request[row]
    named = types_of(request)
    return next(iter(named)) if len(named) == 1 and "," not in request and not snapshot.jobs.exclusive[row] else ""


def held_of(snapshot: Snapshot, gpu_type: str) -> Held:
    """What holding jobs hold, on nodes of several types of this type alone."""
    held, node = snapshot.allocations, node_rows(snapshot)
    several = np.append(snapshot.nodes.gpu_types.map(lambda has: "," in has, np.bool_), False)
    gpus = np.where(several[node] & ~held.gpu_type.isin([gpu_type]), 0, held.gpus)
    return Held.of(replace(snapshot, allocations=held.with_columns(gpus=gpus)))


@dataclass(slots=True, eq=False)
class ByType:
    """GPUs by type on nodes that have several.

    told: (N,) bool, those of these nodes of which it is known how many of each type are free. has, free: (N,) int64 by
    type, 0 on other nodes. held: by job id and row of the node.
    """

    told: Bools
    has: dict[str, Int64s]
    free: dict[str, Int64s]
    held: dict[tuple[int, int], Counter[str]]

    @classmethod
    def of(cls, snapshot: Snapshot) -> ByType:
        """Not told where jobs hold GPUs that are not seen, or are not said to be of a type."""
        nodes, found = snapshot.nodes, cls(np.zeros(len(snapshot.nodes), np.bool_), {}, {}, {})
        several = nodes.gpu_types.map(lambda has: "," in has, np.bool_)
        for node in np.flatnonzero(several).tolist():
            types = types_of(nodes.gpu_types[node])
            found.told[node] = sum(types.values()) == int(nodes.gpus[node])
            for name, gpus in types.items():
                found.has.setdefault(name, np.zeros(len(nodes), np.int64))[node] = gpus
        if not several.any():
            return found
        found.free = {name: gpus.copy() for name, gpus in found.has.items()}
        used, held, rows = np.zeros(len(nodes), np.int64), snapshot.allocations, node_rows(snapshot).tolist()
        for job_id, node, name, gpus in zip(held.job_id.tolist(), rows, held.gpu_type, held.gpus.tolist(), strict=True):
            if node >= 0 and several[node]:
                used[node] += gpus
                found.held.setdefault((job_id, node), Counter())[name] += gpus
                if name in found.free:
                    found.free[name][node] -= gpus
                else:
                    found.told[node] = False
        found.told &= used == nodes.gpus_used
        return found

    def able(self, gpu_type: str, gpus: Int64s) -> Bools:
        """Those of the nodes that are told and could hold so many of this type each. gpus: (N,). (N,) bool."""
        return self.told & self.could(gpu_type, gpus)

    def could(self, gpu_type: str, gpus: Int64s) -> Bools:
        """The same, whether or not it is told what is free there. (N,) bool."""
        return self.has[gpu_type] >= gpus if gpu_type in self.has else np.zeros_like(self.told)

    def within(self, gpus: Int64s, gpu_type: str) -> Int64s:
        """Free GPUs of all nodes, of those that are told the ones of this type. gpus: (N,) of any. (N,) int64."""
        return np.where(self.told, self.free[gpu_type], gpus) if gpu_type in self.free else gpus

    def give(self, job_id: int, node: int) -> None:
        """A job gives back what it holds of a node."""
        for name, gpus in self.held.get((job_id, node), {}).items():
            if name in self.free:
                self.free[name][node] += gpus

    def take(self, nodes: Int64s, gpus: Int64s, gpu_type: str) -> None:
        """A job takes so many of each of these nodes; of "" any, so that nobody knows what is free then. gpus: (N,)."""
        if gpu_type in self.free:
            self.free[gpu_type][nodes] -= gpus[nodes]
        elif not gpu_type:
            self.told[nodes] = False
