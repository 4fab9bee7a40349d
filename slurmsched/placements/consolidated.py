"""Consolidated: a gang on the fewest nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.kernels.ranking_walks import backfill, shares_given, walk
from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.columns import Floats, Int64s, made_read_only
from slurmsched.placements.gang_walk import equal_parts
from slurmsched.resources.allocated import AllocatedGpus
from slurmsched.resources.eligibility import node_pools
from slurmsched.resources.placeable_gpus import placeable_gpu_counts
from slurmsched.resources.startable_jobs import startable
from slurmsched.resources.timeline import free_gpus_over_time


@dataclass(frozen=True, slots=True)
class Consolidated:
    """A gang on one node if it fits there, else on whole nodes and one remainder.

    node_choice: of several nodes that do, the one left "fullest" (best fit), or the "first" in order (first fit).
    Running jobs stay where they are or go; a pending job takes idle GPUs first, then those of the least urgent running
    jobs. Raises ConfigError for another choice. Source: Gu et al. (Tiresias), NSDI '19, section 3.3, without its model
    profiles; its released simulator takes the first.
    """

    node_choice: str = "fullest"

    def __post_init__(self) -> None:
        if self.node_choice not in ("fullest", "first"):
            raise ConfigError(f"must be fullest or first, got {self.node_choice!r}", key="placement.node_choice")

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold GPUs now, and where; every gang whole."""
        jobs, allocated, (pool, usable) = snapshot.jobs, AllocatedGpus.of(snapshot), node_pools(snapshot)
        rows = ranking.order[((allocated.count > 0) | startable(snapshot))[ranking.order]]
        gpus, capacity = jobs.gpus.astype(np.int64), placeable_gpu_counts(snapshot)
        nodes = equal_parts(gpus, jobs.nodes, pool, usable, snapshot.nodes.gpus)
        given = walk(rows, gpus, nodes, allocated.first, allocated.count, allocated.node, allocated.gpus, pool, usable,
                     capacity, self._handicap(snapshot))  # fmt: skip
        return _assignments(rows, given)

    def backfill(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Running jobs, and those of the ranking that start without delaying the first that must wait.

        Partitions and GPU types are not looked at.
        """
        return _backfilled(snapshot, ranking, self._handicap(snapshot), 1)

    def reserve(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Running jobs, and those of the ranking that start without delaying any before them; as backfill."""
        return _backfilled(snapshot, ranking, self._handicap(snapshot), len(ranking.order))

    def _handicap(self, snapshot: Snapshot) -> Floats:
        """What sets nodes of one price apart (ranking_walks.walk). (N,)."""
        nodes = len(snapshot.nodes)
        return np.arange(nodes) / max(nodes, 1) if self.node_choice == "first" else np.zeros(nodes)


def _backfilled(snapshot: Snapshot, ranking: Ranking, price: Floats, most: int) -> Assignments:
    """Running jobs, and those that start before no reservation. most: reservations made for jobs that must wait."""
    jobs, allocated, capacity, order = (
        snapshot.jobs,
        AllocatedGpus.of(snapshot),
        placeable_gpu_counts(snapshot),
        ranking.order,
    )
    times, free = free_gpus_over_time(snapshot, allocated, capacity)
    waiting = order[(startable(snapshot) & (jobs.gpus > 0))[order]]
    size = max(int(capacity.max(initial=0)), 1)
    gpus, every = jobs.gpus[waiting].astype(np.int64), np.ones((1, len(capacity)), np.bool_)
    nodes = equal_parts(gpus, jobs.nodes[waiting], np.zeros(len(waiting), np.int64), every, snapshot.nodes.gpus)
    started = backfill(times, free, gpus, nodes, jobs.time_limit_s[waiting], price, size, most, False)
    running = order[(allocated.count > 0)[order]]
    return _assignments(
        np.concatenate([running, waiting]), np.concatenate([allocated.table(running, capacity), started])
    )


def _assignments(rows: Int64s, given: Int64s) -> Assignments:
    """The rows that were given GPUs, with their places. rows: (R,). given: (R, N) GPUs of each node."""
    served, count, node, gpus = shares_given(given)
    return Assignments(*map(made_read_only, (rows[served], np.cumsum(count) - count, count, node, gpus)))
