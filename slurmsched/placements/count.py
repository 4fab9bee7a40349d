"""Count: GPUs are one pile, nodes do not matter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.placements.candidates import Held, assign, to_give


@dataclass(frozen=True, slots=True)
class Count:
    """Every GPU as good as any other: what simulators that only count GPUs assume.

    All assignments name node row 0. For comparison with published results, not for a real cluster: partitions,
    GPU types and node borders are ignored. Source: the `count` scheme of the Tiresias simulator.
    """

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold GPUs now, by their number alone."""
        held, rows = Held.of(snapshot), len(snapshot.jobs)
        pile = Held(held.first, held.count, np.zeros_like(held.node), held.gpus)
        total = np.array([to_give(snapshot).sum()], np.int64)
        return assign(snapshot, ranking.order, total, pile, np.zeros(rows, np.int64), np.ones((1, 1), np.bool_))
