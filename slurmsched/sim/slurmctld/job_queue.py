"""The queue as a pass of slurmctld takes it: one record for each partition of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from slurmsched.model.columns import Bools, Floats, Int64s

if TYPE_CHECKING:
    from slurmsched.sim.slurmctld.slurmctld_state import SlurmctldState


@dataclass(frozen=True, slots=True, eq=False)
class QueueRecords:
    """Records in the order in which a pass tests them. All columns are (E,) int64.

    row: of the job.
    pool, part: rows of JobDemands.usable and .members for the record's partition.
    array: the same number for the tasks of an array in one partition, 0 = no array.
    alike: the same number for records that ask for the same, from 0 on.
    """

    row: Int64s
    pool: Int64s
    part: Int64s
    array: Int64s
    alike: Int64s

    def __len__(self) -> int:
        return len(self.row)

    def take(self, which: Int64s | Bools | slice) -> QueueRecords:
        """Some of the records."""
        return QueueRecords(*(getattr(self, name)[which] for name in self.__slots__))

    def joined(self, others: QueueRecords) -> QueueRecords:
        """These records, then the others."""
        return QueueRecords(*(np.concatenate([getattr(self, name), getattr(others, name)]) for name in self.__slots__))

    @property
    def job(self) -> Int64s:
        """A number of each record's job, below their number. (E,)."""
        return np.unique(self.row, return_inverse=True)[1].reshape(-1).astype(np.int64)

    def one_of_each(self) -> QueueRecords:
        """One record for each request."""
        found = np.full(int(self.alike.max(initial=-1)) + 1, -1, np.int64)
        found[self.alike] = np.arange(len(self))
        return self.take(found[found >= 0])


def queue_records(cluster: SlurmctldState, rows: Int64s) -> QueueRecords:
    """The records of these jobs, which are in slurmctld's order. rows: (R,).

    Of a job of several partitions each record has its partition's place in the queue: by PriorityTier, then by priority
    with the partition's factor. Source: Slurm's src/slurmctld/job_scheduler.c, build_job_queue and sort_job_queue2.
    """
    demand, array = cluster.demand, cluster.job.requests.array_id
    pool = demand.pool[rows]
    count = (demand.choices[pool] >= 0).sum(axis=1) if demand.several else np.ones(len(rows), np.int64)
    if (count <= 1).all():
        return QueueRecords(rows, pool, demand.area[rows], array[rows], cluster.alike[rows])
    at = np.repeat(np.arange(len(rows)), count)
    choice, most = np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count), demand.choices.shape[1]
    row, pool = rows[at], pool[at]
    part = demand.choice_part[pool, choice]
    order = np.lexsort((at, choice, cluster.job.record_id[row], cluster.job.submit_s[row],
                        -_priority(cluster, row, part), -cluster.layout.of_partitions("tier")[part]))  # fmt: skip
    array_of = np.where(array[row] > 0, array[row] * most + choice, 0)
    made = QueueRecords(row, demand.choices[pool, choice], part, array_of, cluster.alike[row] * most + choice)
    return made.take(order)


def _priority(cluster: SlurmctldState, row: Int64s, part: Int64s) -> Floats:
    """Priority of each record: that of the job, with the factor of this partition for that of its first. (E,)."""
    factor = cluster.layout.of_partitions("factor")
    points = np.floor(cluster.model.weight_partition * factor / max(factor.max(initial=0.0), 1.0))
    made: Floats = cluster.job.priority(row, cluster.now_s) + points[part] - points[cluster.demand.part[row]]
    return np.where(cluster.job.requests.fixed_priority[row] > 0, cluster.job.priority(row, cluster.now_s), made)
