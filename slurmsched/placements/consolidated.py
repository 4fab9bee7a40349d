"""Consolidated: a gang on the fewest nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.kernels.backfill import backfill
from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.placements.candidates import assign, assignments, eligible, parted, pools, to_give
from slurmsched.placements.outlook import free_ahead
from slurmsched.resources.held import Held


@dataclass(frozen=True, slots=True)
class Consolidated:
    """A gang on one node if it fits there, else on whole nodes and one remainder.

    node_choice: of several nodes that do, the one left "fullest" (best fit), or the "first" in order (first fit).
    Running jobs stay where they are or go; a pending job takes idle GPUs first, then those of the least urgent
    running jobs. Raises ConfigError for another choice. Source: Gu et al. (Tiresias), NSDI '19, section 3.3, without
    its model profiles; its released simulator takes the first.
    """

    node_choice: str = "fullest"

    def __post_init__(self) -> None:
        if self.node_choice not in ("fullest", "first"):
            raise ConfigError(f"must be fullest or first, got {self.node_choice!r}", key="placement.node_choice")

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold GPUs now, and where; every gang whole."""
        pool, usable = pools(snapshot)
        return assign(
            snapshot, ranking.order, to_give(snapshot), Held.of(snapshot), pool, usable, self._handicap(snapshot)
        )

    def backfill(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Running jobs, and those of the ranking that start without delaying the first that must wait.

        Partitions and GPU types are not looked at.
        """
        return _backfilled(snapshot, ranking, self._handicap(snapshot), 1)

    def reserve(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Running jobs, and those of the ranking that start without delaying any before them; as backfill."""
        return _backfilled(snapshot, ranking, self._handicap(snapshot), len(ranking.order))

    def _handicap(self, snapshot: Snapshot) -> Floats:
        """What sets nodes of one price apart (kernels.walk). (N,)."""
        nodes = len(snapshot.nodes)
        return np.arange(nodes) / max(nodes, 1) if self.node_choice == "first" else np.zeros(nodes)


def _backfilled(snapshot: Snapshot, ranking: Ranking, price: Floats, most: int) -> Assignments:
    """Running jobs, and those that start before no reservation. most: reservations made for jobs that must wait."""
    jobs, held, capacity, order = snapshot.jobs, Held.of(snapshot), to_give(snapshot), ranking.order
    times, free = free_ahead(snapshot, held, capacity)
    waiting = order[(eligible(snapshot) & (jobs.gpus > 0))[order]]
    size = max(int(capacity.max(initial=0)), 1)
    gpus, every = jobs.gpus[waiting].astype(np.int64), np.ones((1, len(capacity)), np.bool_)
    nodes = parted(gpus, jobs.nodes[waiting], np.zeros(len(waiting), np.int64), every, snapshot.nodes.gpus)
    started = backfill(times, free, gpus, nodes, jobs.time_limit_s[waiting], price, size, most, False)
    running = order[(held.count > 0)[order]]
    return assignments(np.concatenate([running, waiting]), np.concatenate([held.table(running, capacity), started]))
