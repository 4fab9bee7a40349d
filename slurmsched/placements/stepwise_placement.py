"""Waiting jobs placed one after another on nodes that the caller names, without a whole `place` for each."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Protocol, runtime_checkable

import numpy as np

from slurmsched.kernels.gang_fit import headroom
from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.gpu_masks import low_bits
from slurmsched.placements.gang_walk import Chooser, Gang, GangRequest, OfferedGpus
from slurmsched.resources.allocated import allocated_whole_gpus, node_rows
from slurmsched.resources.eligibility import node_pools
from slurmsched.resources.placeable_gpus import PlaceableGpus, shown_masks, whole_gpu_masks


@runtime_checkable
class GangPlacement(Protocol):
    """Optional, of a placement: it chooses for each gang by what is free alone, so that it can be asked gang by gang.

    Its `place` is `place_gangs` with this chooser.
    """

    def chooser(self, snapshot: Snapshot, placeable: PlaceableGpus) -> Chooser: ...


@dataclass(frozen=True, slots=True, eq=False)
class InUse:
    """What is taken of each node, as the columns of the same names in the snapshot's nodes. All (N,), writable."""

    gpu_mask_used: Int64s
    gpus_used: Int64s
    cpus_used: Int64s
    memory_used_mib: Floats

    @classmethod
    def of(cls, snapshot: Snapshot) -> InUse:
        nodes = snapshot.nodes
        return cls(nodes.gpu_mask_used.copy(), nodes.gpus_used.astype(np.int64), nodes.cpus_used.astype(np.int64),
                   nodes.memory_used_mib.copy())  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class StepwisePlacement:
    """What a placement gives one waiting job beside all that running jobs hold.

    It equals `place` with a ranking of the holding jobs and that one. The snapshot then has other nodes closed, and
    what earlier jobs took in use.

    choose: of the placement.
    pool, usable: of node_pools, for the rows of `row_at`.
    free: (N,) masks of GPUs to give.
    free_closed: (N,) the same of a closed node.
    whole: (N,) masks of all GPUs of a node.
    cpus, memory_mib: (N,) to give.
    shown: (N,) GPUs that allocations show.
    """

    snapshot: Snapshot
    placeable: PlaceableGpus
    choose: Chooser
    row_at: dict[int, int]
    pool: Int64s
    usable: Bools
    free: Int64s
    free_closed: Int64s
    whole: Int64s
    cpus: Floats
    memory_mib: Floats
    shown: Int64s

    @classmethod
    def of(
        cls, snapshot: Snapshot, placement: GangPlacement, rows: Int64s, placeable: PlaceableGpus | None = None
    ) -> StepwisePlacement:
        """rows: (K,) of the jobs that may be placed. placeable: PlaceableGpus.of(snapshot), if it is at hand."""
        placeable = PlaceableGpus.of(snapshot) if placeable is None else placeable
        held = np.zeros(len(snapshot.nodes), np.int64)
        np.bitwise_or.at(held, placeable.allocated.node, placeable.allocated.mask)
        at, gpus = node_rows(snapshot), allocated_whole_gpus(snapshot)
        shown = np.bincount(at[at >= 0], gpus[at >= 0], len(snapshot.nodes)).astype(np.int64)
        closed = np.where(placeable.blind, low_bits(shown), shown_masks(snapshot))
        cpus, memory_mib = placeable.cpus.copy(), placeable.memory_mib.copy()
        np.subtract.at(cpus, placeable.allocated.node, placeable.allocated.cpus)
        np.subtract.at(memory_mib, placeable.allocated.node, placeable.allocated.memory_mib)
        row_at, whole = {row: k for k, row in enumerate(rows.tolist())}, whole_gpu_masks(snapshot)
        pools, free = node_pools(snapshot, rows), (placeable.capacity & ~held, closed & ~held)
        choose = placement.chooser(snapshot, placeable)
        return cls(snapshot, placeable, choose, row_at, *pools, *free, whole, cpus, memory_mib, shown)

    def place(self, row: int, nodes: Bools) -> Gang | None:
        """The gang of this job on these nodes; None if it does not fit. Nothing is taken. nodes: (N,) bool."""
        ask = self._request(row, nodes)
        if ask is None:
            return None
        free = np.where(nodes, self.free, self.free_closed)
        room = headroom(free, ask.usable, self.cpus, self.memory_mib, ask.cpus_per_gpu, ask.mib_per_gpu)
        return self.choose(ask, OfferedGpus(free, room))

    def _request(self, row: int, nodes: Bools) -> GangRequest | None:
        jobs, usable = self.snapshot.jobs, self.usable[self.pool[self.row_at[row]]] & nodes
        asked = (int(jobs.job_id[row]), int(jobs.gpus[row]), int(jobs.nodes[row]))
        beside = (float(jobs.cpus[row]), float(jobs.memory_mib[row]))
        return GangRequest.of(row, *asked, beside, usable, self.snapshot.nodes.gpus.astype(np.int64))

    def follow(self, node: int, mask: int, gpus: int, used: InUse) -> bool:
        """Count what a job took of a node. False where more changes than that: then all is to be worked out anew.

        mask: its GPUs, 0 = not known. gpus: their number. used: after that.
        """
        if self.placeable.blind[node]:
            if mask or int(used.gpu_mask_used[node]).bit_count() >= used.gpus_used[node]:
                return False
            unseen = max(int(used.gpus_used[node] - self.shown[node]), 0)
            self.free[node] &= (1 << (int(self.snapshot.nodes.gpus[node]) - unseen)) - 1
        elif mask & ~int(self.whole[node]) or int(used.gpu_mask_used[node]).bit_count() != used.gpus_used[node]:
            return False
        else:
            self.free[node] &= ~mask
        nodes, allocated, here = self.snapshot.nodes, self.placeable.allocated, self.placeable.allocated.node == node
        self.cpus[node] = _amount_to_give(nodes.cpus[node], used.cpus_used[node], allocated.cpus[here])
        self.memory_mib[node] = _amount_to_give(
            nodes.memory_mib[node], used.memory_used_mib[node], allocated.memory_mib[here]
        )
        return True


def _amount_to_give(have: float, used: float, held: Floats) -> float:
    """CPUs or memory of a node to give, infinity = not counted; rounded as by PlaceableGpus and the walk of a place.

    held: of each holding job there.
    """
    theirs = held.tolist()
    free = float(have) - max(float(used) - sum(theirs, 0.0), 0.0)
    for one in theirs:
        free -= one
    return free if have > 0 else inf
