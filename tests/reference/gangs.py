"""Naive twin of gang_walk.place_gangs: one job after another, trying one more running job to go at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from slurmsched.model import Ranking, Snapshot
from slurmsched.placements.gang_walk import Chooser, GangRequest, OfferedGpus
from slurmsched.resources.placeable_gpus import PlaceableGpus
from tests.reference.linked import headroom

Cell = tuple[int, int, float, float]  # node, GPU mask, CPUs, memory


def place_gangs(snapshot: Snapshot, ranking: Ranking, choose: Chooser, asks: dict[int, GangRequest]) -> dict[int, Any]:
    """Nodes and masks of each job that gets GPUs, in the walk's order. asks: of each waiting job by row."""
    placeable = PlaceableGpus.of(snapshot)
    allocated = placeable.allocated
    columns = (allocated.row, allocated.node, allocated.mask, allocated.cpus, allocated.memory_mib)
    held: dict[int, list[Cell]] = {}
    for row, *cell in zip(*(column.tolist() for column in columns), strict=True):
        held.setdefault(row, []).append(tuple(cell))
    free = [placeable.capacity.copy(), placeable.cpus.copy(), placeable.memory_mib.copy()]
    later = [row for row in ranking.order.tolist() if row in held]
    placed: dict[int, Any] = {}
    waited, displaced = False, False
    for row in ranking.order.tolist():
        if row in held:
            later.remove(row)
            if not waited or _is_free(held[row], free, displaced):
                _take(held[row], free)
                placed[row] = ([cell[0] for cell in held[row]], [cell[1] for cell in held[row]])
            continue
        waited = True
        for gone in range(len(later) + 1) if row in asks else ():
            offered = [column.copy() for column in free]
            for other in later[: len(later) - gone]:
                _take(held[other], offered)
            gang = _chosen(choose, asks[row], offered)
            if gang is not None:
                displaced = displaced or gone > 0
                cells = zip(*(part.tolist() for part in gang), strict=True)
                beside = (asks[row].cpus_per_gpu, asks[row].mib_per_gpu)
                _take([(n, mask, *(each * mask.bit_count() for each in beside)) for n, mask in cells], free)
                placed[row] = (gang[0].tolist(), gang[1].tolist())
                break
    return placed


def _is_free(cells: list[Cell], free: list[np.ndarray], beside: bool) -> bool:
    gpus, cpus, memory = free
    return all(
        not mask & ~int(gpus[n]) and not (beside and (cpus[n] < c - 1e-6 or memory[n] < m - 1e-6))
        for n, mask, c, m in cells
    )


def _take(cells: list[Cell], free: list[np.ndarray]) -> None:
    for n, mask, cpus, memory in cells:
        free[0][n] &= ~mask
        free[1][n] -= cpus
        free[2][n] -= memory


def _chosen(choose: Chooser, ask: GangRequest, free: list[np.ndarray]) -> Any:
    cpus, memory = (np.maximum(column, 0.0) + 1e-9 for column in free[1:])  # running jobs may hold more than there is
    room = headroom(free[0], ask.usable, cpus, memory, ask.cpus_per_gpu, ask.mib_per_gpu)
    return choose(ask, OfferedGpus(free[0], np.array(room, np.int64)))
