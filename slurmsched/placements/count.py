"""Count: GPUs are one pile, nodes do not matter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.kernels.ranking_walks import backfill, backfill_by_count, place_by_count
from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.columns import Int64s, made_read_only
from slurmsched.resources.allocated import AllocatedGpus, node_rows
from slurmsched.resources.placeable_gpus import placeable_gpu_counts
from slurmsched.resources.startable_jobs import HOLDS, MAY_START, job_standing, requested_gpus
from slurmsched.resources.timeline import free_gpus_over_time, until_expected_end_s


@dataclass(frozen=True, slots=True)
class Count:
    """Every GPU as good as any other: what simulators that only count GPUs assume.

    All assignments name node row 0. For comparison with published results, not for a real cluster: partitions, GPU
    types and node borders are ignored. Source: the `count` scheme of the Tiresias simulator.
    """

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold GPUs now, by their number alone."""
        jobs, allocations, nodes, order = snapshot.jobs, snapshot.allocations, snapshot.nodes, ranking.order
        placed = np.empty((5, len(order)), np.int64)
        served = place_by_count(
            order, job_standing(snapshot), (jobs.job_id, jobs.gpus),
            (allocations.job_id, node_rows(snapshot), allocations.gpus),
            (nodes.closed, nodes.gpus, nodes.gpus_used), placed,
        )  # fmt: skip
        return Assignments(*made_read_only(placed)[:, :served])

    def backfill(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Running jobs, and those of the ranking that start without delaying the first that must wait."""
        stands, order = job_standing(snapshot), ranking.order
        rows = np.concatenate([order[stands[order] == HOLDS], order[stands[order] == MAY_START]])
        gpus = requested_gpus(snapshot, stands)
        running = int(np.count_nonzero(stands == HOLDS))
        served = backfill_by_count(
            gpus[rows], until_expected_end_s(snapshot)[rows], running, placeable_gpu_counts(snapshot).sum()
        )
        return _piled(rows[served], gpus)

    def reserve(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Running jobs, and those of the ranking that start without delaying any before them."""
        stands, order, jobs = job_standing(snapshot), ranking.order, snapshot.jobs
        gpus, whole = requested_gpus(snapshot, stands), placeable_gpu_counts(snapshot).sum(keepdims=True)
        waiting = order[(stands[order] == MAY_START) & (gpus[order] > 0) & (gpus[order] <= whole[0])]
        times, free = free_gpus_over_time(snapshot, AllocatedGpus.of(snapshot), whole)
        limits_s, ones = jobs.time_limit_s[waiting], np.ones(len(waiting), np.int64)
        started = backfill(times, free, gpus[waiting], ones, limits_s, np.zeros(1), int(whole[0]), len(waiting), False)
        return _piled(np.concatenate([order[stands[order] == HOLDS], waiting[started[:, 0] > 0]]), gpus)


def _piled(rows: Int64s, gpus: Int64s) -> Assignments:
    """These rows with their GPUs, all on node row 0."""
    ones, zeros = np.ones(len(rows), np.int64), np.zeros(len(rows), np.int64)
    return Assignments(*map(made_read_only, (rows, np.arange(len(rows)), ones, zeros, gpus[rows])))
