"""Count: GPUs are one pile, nodes do not matter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.kernels.backfill import backfill
from slurmsched.kernels.pile import backfill_pile, place_on_pile
from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.columns import Int64s, sealed
from slurmsched.placements.candidates import HOLDS, MAY_START, standing, to_give, wanted_gpus
from slurmsched.placements.outlook import ahead_s, free_ahead
from slurmsched.resources.held import Held, node_rows


@dataclass(frozen=True, slots=True)
class Count:
    """Every GPU as good as any other: what simulators that only count GPUs assume.

    All assignments name node row 0. For comparison with published results, not for a real cluster: partitions,
    GPU types and node borders are ignored. Source: the `count` scheme of the Tiresias simulator.
    """

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold GPUs now, by their number alone."""
        jobs, held, nodes, order = snapshot.jobs, snapshot.allocations, snapshot.nodes, ranking.order
        placed = np.empty((5, len(order)), np.int64)
        served = place_on_pile(
            order, standing(snapshot), (jobs.job_id, jobs.gpus), (held.job_id, node_rows(snapshot), held.gpus),
            (nodes.closed, nodes.gpus, nodes.gpus_used), placed,
        )  # fmt: skip
        return Assignments(*sealed(placed)[:, :served])

    def backfill(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Running jobs, and those of the ranking that start without delaying the first that must wait."""
        stands, order = standing(snapshot), ranking.order
        rows = np.concatenate([order[stands[order] == HOLDS], order[stands[order] == MAY_START]])
        gpus = wanted_gpus(snapshot, stands)
        running = int(np.count_nonzero(stands == HOLDS))
        served = backfill_pile(gpus[rows], ahead_s(snapshot)[rows], running, to_give(snapshot).sum())
        return _piled(rows[served], gpus)

    def reserve(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Running jobs, and those of the ranking that start without delaying any before them."""
        stands, order, jobs = standing(snapshot), ranking.order, snapshot.jobs
        gpus, pile = wanted_gpus(snapshot, stands), to_give(snapshot).sum(keepdims=True)
        waiting = order[(stands[order] == MAY_START) & (gpus[order] > 0) & (gpus[order] <= pile[0])]
        times, free = free_ahead(snapshot, Held.of(snapshot), pile)
        limits_s, ones = jobs.time_limit_s[waiting], np.ones(len(waiting), np.int64)
        started = backfill(times, free, gpus[waiting], ones, limits_s, np.zeros(1), int(pile[0]), len(waiting), False)
        return _piled(np.concatenate([order[stands[order] == HOLDS], waiting[started[:, 0] > 0]]), gpus)


def _piled(rows: Int64s, gpus: Int64s) -> Assignments:
    """These rows with their GPUs, all on node row 0."""
    ones, zeros = np.ones(len(rows), np.int64), np.zeros(len(rows), np.int64)
    return Assignments(*map(sealed, (rows, np.arange(len(rows)), ones, zeros, gpus[rows])))
