"""Shortest waiting allowance first: GENIE."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from slurmsched.allocation.heterogeneity import HeterogeneousCluster, gpu_type, heterogeneous_cluster
from slurmsched.allocation.job_times import active, deadline_s, expected_remaining_s, missing_time_notes
from slurmsched.estimators.requested_time import Hint
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import JobChanges, Labels, PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.ordering import ordered
from slurmsched.plain_text import pluralize
from slurmsched.protocols import Estimator, SpeedEstimator

MOST_JOBS = 500  # that wait, first in line, for which a type is chosen at a look (ours)


@dataclass(frozen=True, slots=True)
class Genie:
    """Shortest waiting allowance first: the job that can wait least and still meet its deadline.

    A job that can no longer meet its deadline, or has none, goes after those that can, by attained service. If speeds
    differ by GPU type, a job is sent to the type on which it is predicted to end first.
    estimator: source of expected run times.
    speeds: source of speeds by GPU type.
    Source: Chen et al. (GENIE), TPDS 2020, for the allowance and the placement by predicted rate. Ours: the place of
    the other jobs, speeds by GPU type in place of its fitted model, and the ends of earlier jobs.
    """

    preemptive: ClassVar[bool] = False
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.DEADLINE,
        "Chen et al.: GENIE, IEEE TPDS 2020",
        left_out=("Other sizes: a job keeps the number of GPUs that it asks for.",),
        needs=(PolicyInput.DEADLINE, PolicyInput.DURATION, PolicyInput.SPEED),
        uses=(PolicyLever.ORDER, PolicyLever.GPU_TYPE),
        on_slurm=(
            "The paper fits a job's rate in a profiling run; here it is the user's hint or the history of jobs alike.",
            "A job of one node that names no type is sent to its fastest one where placement.types is on.",
        ),
        criteria={"in_time": "can be in time", "allowance_s": "can wait {} and still be in time"},
    )

    estimator: Estimator = field(default_factory=Hint)
    speeds: SpeedEstimator = field(default_factory=EqualSpeeds)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, due_s = snapshot.jobs, deadline_s(snapshot.jobs)
        cluster, run_s = heterogeneous_cluster(snapshot, self.speeds), expected_remaining_s(self.estimator, snapshot)
        best = cluster.speed.max(axis=1, initial=0.0)
        remaining_s = np.divide(run_s, best, out=run_s.copy(), where=best > 0)
        known = np.isfinite(remaining_s)
        allowance_s = np.where(known, due_s - snapshot.now_s - np.where(known, remaining_s, 0.0), np.inf)
        in_time = np.isfinite(allowance_s) & (allowance_s >= 0)
        order = ordered(jobs, ~in_time, np.where(in_time, allowance_s, jobs.attained_gpu_s))
        late = int((active(snapshot) & (allowance_s < 0)).sum())
        notes = missing_time_notes(active(snapshot), due_s, remaining_s)
        notes += (f"{pluralize(late, 'job')} cannot meet the deadline any more",) if late else ()
        why = {"in_time": in_time.astype(np.int64), "allowance_s": allowance_s}
        alike = bool((cluster.speed == best[:, None]).all(axis=1)[cluster.active].all())
        changes = None if alike else JobChanges(gpu_type=Labels.of(self._types(snapshot, cluster, run_s, order)))
        return Ranking(order, why=why, notes=notes, changes=changes)

    def _types(self, snapshot: Snapshot, cluster: HeterogeneousCluster, run_s: Floats, order: Int64s) -> list[str]:
        """The type on which each of the first MOST_JOBS that wait is predicted to end first, "" for all others.

        Jobs are taken in order, and those before a job hold their GPUs on their types until they end.
        """
        jobs, found = snapshot.jobs, [""] * len(snapshot.jobs)
        free_s = _free_s(snapshot, cluster, self.estimator)
        waits = jobs.pending & cluster.active
        for row in order[waits[order]][:MOST_JOBS].tolist():
            gpus, choices = int(jobs.gpus[row]), list[tuple[float, float, float, int]]()
            for column, times_s in enumerate(free_s):
                speed = float(cluster.speed[row, column])
                if speed > 0 and gpus <= len(times_s):
                    start_s = float(times_s[gpus - 1])
                    choices.append((start_s + float(run_s[row]) / speed, start_s, -speed, column))
            end_s, _, _, column = min(choices)
            found[row] = cluster.types[column]
            free_s[column][:gpus] = end_s
            free_s[column].sort()
        return found

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When the next job that waits can no longer meet its deadline [Unix s], infinity if none is about to."""
        waits = ~running & ~snapshot.jobs.finished & (ranking.why["in_time"] > 0)
        return snapshot.now_s + float(np.min(ranking.why["allowance_s"], initial=np.inf, where=waits)) + 1.0


def _free_s(snapshot: Snapshot, cluster: HeterogeneousCluster, estimator: Estimator) -> list[Floats]:
    """When each GPU of each type is free, ascending [Unix s]: now, at the predicted end of the job that holds it, or
    never as far as is known.

    A run time is counted on the reference type, so that a job is through sooner or later by its speed where it is.
    """
    jobs, nodes, allocations, now_s = snapshot.jobs, snapshot.nodes, snapshot.allocations, snapshot.now_s
    column = np.array([cluster.types.index(gpu_type(text)) for text in nodes.gpu_types], np.int64)
    total_s = estimator.estimate(snapshot).total_s
    row_of = {job: row for row, job in enumerate(jobs.job_id.tolist())}
    node_of = nodes.name.rows()
    free_s: list[list[float]] = [[] for _ in cluster.types]
    known = np.zeros(len(nodes), np.int64)
    for job, name, gpus in zip(allocations.job_id.tolist(), allocations.node, allocations.gpus.tolist(), strict=True):
        row, node = row_of.get(job), node_of.get(name)
        if row is None or node is None or nodes.closed[node]:
            continue
        speed = float(cluster.speed[row, column[node]])
        remaining_s = float(total_s[row]) / speed - float(jobs.executed_s[row]) if speed > 0 else math.inf
        free_s[column[node]] += [now_s + max(remaining_s, 0.0) if math.isfinite(remaining_s) else math.inf] * gpus
        known[node] += gpus
    for node in np.flatnonzero(~nodes.closed).tolist():
        others = max(int(nodes.gpus_used[node]) - int(known[node]), 0)
        free = max(int(nodes.gpus[node]) - int(known[node]) - others, 0)
        free_s[column[node]] += [now_s] * free + [math.inf] * others
    return [np.sort(np.array(times, np.float64)) for times in free_s]
