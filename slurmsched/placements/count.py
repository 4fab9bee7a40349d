"""Count: GPUs are one pile, nodes do not matter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.kernels.pile import backfill_pile, fill_pile
from slurmsched.model import Assignments, Ranking, Snapshot, frozen
from slurmsched.model.columns import Bools, Int64s
from slurmsched.placements.candidates import eligible, held_gpus, to_give
from slurmsched.placements.outlook import ahead_s


@dataclass(frozen=True, slots=True)
class Count:
    """Every GPU as good as any other: what simulators that only count GPUs assume.

    All assignments name node row 0. For comparison with published results, not for a real cluster: partitions,
    GPU types and node borders are ignored. Source: the `count` scheme of the Tiresias simulator.
    """

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold GPUs now, by their number alone."""
        held, order = held_gpus(snapshot), ranking.order
        rows = order[((held > 0) | eligible(snapshot))[order]]
        gpus = np.where(held > 0, held, snapshot.jobs.gpus)[rows]
        return _piled(rows, gpus, fill_pile(gpus, to_give(snapshot).sum()))

    def backfill(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Running jobs, and those of the ranking that start without delaying the first that must wait."""
        held, order = held_gpus(snapshot), ranking.order
        running = (held > 0)[order]
        rows = np.concatenate([order[running], order[eligible(snapshot)[order] & ~running]])
        gpus = np.where(held > 0, held, snapshot.jobs.gpus)[rows]
        started = backfill_pile(gpus, ahead_s(snapshot)[rows], np.count_nonzero(running), to_give(snapshot).sum())
        return _piled(rows, gpus, started)


def _piled(rows: Int64s, gpus: Int64s, served: Bools) -> Assignments:
    """The served rows, all on node row 0."""
    count = np.count_nonzero(served)
    ones, zeros = np.ones(count, np.int64), np.zeros(count, np.int64)
    columns = (rows[served], np.arange(count), ones, zeros, gpus[served])
    return Assignments(*(frozen(column, np.int64) for column in columns))
