"""Colocated: as by GPU type, and two jobs on the same GPUs run at the speed that a table has of the pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.errors import InputError
from slurmsched.estimators.throughput_table import pair_throughput, throughput, throughput_table
from slurmsched.model import Assignments, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.replay.physics.gpu_types import GpuTypes
from slurmsched.replay.physics.levels import places, sharing
from slurmsched.words import some


@dataclass(frozen=True, slots=True)
class Colocated(GpuTypes):
    """Speed alone as of gpu-types, and beside another job on the same GPUs by the pair's own throughputs there.

    throughputs, reference, whole_steps_s: as of gpu-types; the table must have pairs, as `gavel` has of one GPU each.
    Two jobs share all their GPUs or none. When one of them ends the other goes on at its speed alone.
    Raises as gpu-types, and InputError for a pair of which the table has no throughputs, for three jobs on a GPU, and
    for jobs that share a part of their GPUs only.
    Source: Narayanan et al. (Gavel), OSDI '20.
    """

    shared: ClassVar[bool] = True
    colocates: ClassVar[bool] = True

    def speed(self, snapshot: Snapshot, held: Assignments) -> Floats:
        """See protocols.Physics."""
        found = GpuTypes.speed(self, snapshot, held)
        nodes = [nodes for nodes, _ in places(held)]
        for pair in sharing(snapshot, held):
            found[pair] = self._pair(snapshot, held.rows[pair].tolist(), nodes[pair[0]])
        return found

    def _pair(self, snapshot: Snapshot, rows: list[int], nodes: list[int]) -> Floats:
        """Speeds of two jobs that share their GPUs on these nodes; on several types the slowest counts. (2,)."""
        table, jobs = throughput_table(self.throughputs), snapshot.jobs
        one, other = (jobs.name[row] for row in rows)
        gpus, made = int(jobs.gpus[rows[0]]), []
        base = [throughput(table[self.reference], model, gpus) for model in (one, other)]
        for type_ in self.types_at(snapshot, nodes):
            rates = pair_throughput(table.get(type_, {}), one, other, gpus)
            if min(rates) <= 0:
                raise InputError(
                    f"jobs {jobs.job_id[rows[0]]} and {jobs.job_id[rows[1]]}: models {one!r} and {other!r} on the same "
                    f"{some(gpus, 'GPU')} have no throughputs on {type_!r}; let them not share, or add those",
                    source=self.throughputs,
                )
            made.append([self.whole(rate) for rate in rates])
        return np.min(np.array(made), axis=0) / np.array(base)
