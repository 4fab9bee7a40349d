"""What slurmctld makes of a request when it comes: its time limit, and whether it may come in and ever start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from slurmsched.model.columns import Floats, Int64s, Labels
from slurmsched.replay.associations import Associations
from slurmsched.replay.layout import Layout, Limits
from slurmsched.replay.limits import SUBMITTED, WHY, LimitTable
from slurmsched.replay.requests import Requests
from slurmsched.replay.traces import Trace

REASONS = ("", "PartitionTimeLimit", "PartitionNodeLimit", "MaxWallDurationPerJob", "MaxGRESPerJob", *WHY.values())


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """Of each job: why it would wait for ever, "" = it may start; its time limit. (J,). submitted: limits on jobs that
    came and have not ended.

    A job whose limit is not known takes DefaultTime, else the partition's MaxTime or the MaxWall of its QOS or account,
    but never less than it ran: only limits that are told are held against it.
    Source: Slurm's src/slurmctld/job_mgr.c (job_limits_check) and acct_policy.c; reasons as squeue shows them, without
    QOS or Assoc before.
    """

    why: Labels
    time_limit_s: Floats
    submitted: LimitTable

    @classmethod
    def of(
        cls, trace: Trace, requests: Requests, layout: Layout, tree: Associations, nodes: Int64s, running: LimitTable
    ) -> Entry:
        """nodes: (J,) of each job, as Demand has them. running: limits on jobs that run."""
        part = layout.partition_rows(requests.partition)
        max_s, default_s, least, most = (layout.of_partitions(name)[part] for name in (
            "max_time_s", "default_time_s", "min_nodes", "max_nodes"))  # fmt: skip
        wall_s, gpus = _of_job(requests, layout, tree)
        capped_s = np.minimum(np.where(max_s > 0, max_s, np.inf), np.where(wall_s > 0, wall_s, np.inf))
        taken_s = np.where(default_s > 0, np.minimum(default_s, capped_s), capped_s)
        taken_s = np.maximum(np.where(np.isfinite(taken_s), taken_s, 0.0), trace.time_limit_s)
        limit_s = np.where(trace.limit_known, trace.time_limit_s, taken_s)
        why = np.array([*map(REASONS.index, running.why), 0], np.int32)[running.beyond()]
        why[(gpus != 0) & (trace.gpus > np.maximum(gpus, 0))] = 4
        why[trace.limit_known & (wall_s != 0) & (limit_s > wall_s)] = 3
        asked = np.where(requests.nodes > 0, requests.nodes, nodes)
        why[((requests.nodes > 0) & (asked < least)) | ((most > 0) & (asked > most))] = 2
        why[trace.limit_known & (max_s > 0) & (limit_s > max_s)] = 1
        return cls(Labels(why, REASONS), limit_s, LimitTable(layout, requests, trace.gpus, tree, SUBMITTED))

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


def _of_job(requests: Requests, layout: Layout, tree: Associations) -> tuple[Floats, Int64s]:
    """MaxWall [s] and MaxTRES of GPUs of each job: its QOS's, else its association's; 0 = none, BARRED. (J,)."""
    known = {each.name: each for each in layout.qos}
    rows, place = np.unique(tree.of_job, return_inverse=True)
    found = []
    for name in ("max_wall_s", "max_gpus_per_job"):
        of_qos = requests.qos.map(partial(_told, known, name), np.float64)
        near = np.array([tree.nearest(row, name) for row in rows.tolist()], np.float64)
        found.append(np.where(of_qos != 0, of_qos, near[place.reshape(-1)] if len(near) else of_qos))
    return found[0], found[1].astype(np.int64)


def _told(known: Mapping[str, Limits], name: str, qos: str) -> float:
    return float(getattr(known.get(qos, Limits(qos)), name))
