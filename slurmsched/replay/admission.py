"""What slurmctld makes of a request when it comes: its time limit, and whether it may come in and ever start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurmsched.model.columns import Floats, Int64s, Labels
from slurmsched.replay.associations import Associations
from slurmsched.replay.layout import Layout, Limits
from slurmsched.replay.limits import SUBMITTED, WHY, LimitTable, groups_of
from slurmsched.replay.requests import Requests
from slurmsched.replay.traces import Trace

REASONS = (
    "", "PartitionTimeLimit", "PartitionNodeLimit", "MaxWallDurationPerJob", "MaxGRESPerJob", "MaxGRESMinutesPerJob",
    *WHY.values(),
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """Of each job: why it would wait for ever, "" = it may start. (J,). submitted: limits on jobs that came and have
    not ended. Only time limits that are told are held against a job.
    Source: Slurm's src/slurmctld/job_mgr.c (job_limits_check) and acct_policy.c; reasons as squeue shows them, without
    QOS or Assoc before.
    """

    why: Labels
    submitted: LimitTable

    @classmethod
    def of(
        cls, trace: Trace, requests: Requests, layout: Layout, tree: Associations, nodes: Int64s, running: LimitTable
    ) -> Entry:
        """trace: with the limits that time_limits gives. nodes: (J,) of each job, as Demand has them. running: limits
        on jobs that run."""
        part = layout.partition_rows(requests.partition)
        max_s, least, most = (layout.of_partitions(name)[part] for name in ("max_time_s", "min_nodes", "max_nodes"))
        limit_s, (wall_s, gpus, gpu_s) = trace.time_limit_s, _of_job(requests, layout, tree)
        why = np.array([*map(REASONS.index, running.why), 0], np.int32)[running.beyond()]
        why[trace.limit_known & (gpu_s != 0) & (trace.gpus * limit_s > np.maximum(gpu_s, 0.0))] = 5
        why[(gpus != 0) & (trace.gpus > np.maximum(gpus, 0))] = 4
        why[trace.limit_known & (wall_s != 0) & (limit_s > wall_s)] = 3
        asked = np.where(requests.nodes > 0, requests.nodes, nodes)
        why[((requests.nodes > 0) & (asked < least)) | ((most > 0) & (asked > most))] = 2
        why[trace.limit_known & (max_s > 0) & (limit_s > max_s)] = 1
        ones = {"jobs": np.ones(len(trace))}
        return cls(Labels(why, REASONS), LimitTable(layout, requests, ones, tree, SUBMITTED))

    @property
    def endless(self) -> bool:
        """Whether nothing limits how many jobs may be there."""
        return not len(self.submitted.room)

    def lets_in(self, row: int, tasks: Int64s) -> bool:
        """Whether the job comes in: it could start one day, and there is room for it with the tasks of its array."""
        if self.why[row] or not self.submitted.holds(tasks):
            return False
        self.submitted.use(row)
        return True

    def leaves(self, row: int) -> None:
        """The job has ended."""
        self.submitted.use(row, -1)


def time_limits(trace: Trace, requests: Requests, layout: Layout, tree: Associations) -> Floats:
    """Time limit of each job [s]. (J,). One that is not known is DefaultTime, else the partition's MaxTime or what
    MaxWall or MaxTRESMins of its QOS or account leave, but never less than the job ran."""
    part = layout.partition_rows(requests.partition)
    max_s, default_s = (layout.of_partitions(name)[part] for name in ("max_time_s", "default_time_s"))
    wall_s, _, gpu_s = _of_job(requests, layout, tree)
    capped_s = np.minimum(np.where(max_s > 0, max_s, np.inf), np.where(wall_s > 0, wall_s, np.inf))
    capped_s = np.minimum(capped_s, np.where(gpu_s > 0, gpu_s / np.maximum(trace.gpus, 1), np.inf))
    taken_s = np.where(default_s > 0, np.minimum(default_s, capped_s), capped_s)
    taken_s = np.maximum(np.where(np.isfinite(taken_s), taken_s, 0.0), trace.time_limit_s)
    limit_s: Floats = np.where(trace.limit_known, trace.time_limit_s, taken_s)
    return limit_s


def _of_job(requests: Requests, layout: Layout, tree: Associations) -> tuple[Floats, Floats, Floats]:
    """MaxWall [s], and MaxTRES and MaxTRESMins of GPUs [GPU s] of each job: those of its QOS in their order, else its
    association's; 0 = none, BARRED. (J,)."""
    groups, place = groups_of(layout, requests, tree)
    found = np.zeros((len(groups), 3))
    for at, (row, ordered) in enumerate(groups):
        found[at] = [_told(tree, row, ordered, name) for name in _PER_JOB]
    wall_s, gpus, gpu_s = found[place].T
    return wall_s, gpus, gpu_s


_PER_JOB = ("max_wall_s", "max_gpus_per_job", "max_gpu_s_per_job")


def _told(tree: Associations, row: int, ordered: Sequence[Limits], name: str) -> float:
    of_qos = next((much for qos in ordered if (much := float(getattr(qos, name)))), 0.0)
    return of_qos or float(tree.nearest(row, name))
