"""Shortest waiting allowance first: GENIE."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from slurmsched.estimators.alike import Alike
from slurmsched.estimators.hint import Hint
from slurmsched.model import Card, Family, Input, Labels, Ranking, Snapshot, Use, Wants
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.policies.deadlines import active, deadline_s, missing
from slurmsched.policies.expected import remaining_s
from slurmsched.policies.gpu_market import Market, gpu_type, market
from slurmsched.policies.order import ordered
from slurmsched.protocols import Estimator, SpeedEstimator
from slurmsched.words import some

MOST_JOBS = 500  # that wait, first in line, for which a type is chosen at a look (ours)


@dataclass(frozen=True, slots=True)
class Genie:
    """Shortest waiting allowance first: the job that can wait least and still meet its deadline.

    estimator: where expected run times come from. speeds: by GPU type; where they differ a job is sent to the type on
    which it is predicted to end first. It waits for a fast type only where that ends sooner than to start on another.
    A job that cannot meet its deadline any more, or has none, comes after those that can, by attained service.
    Source: Chen et al. (GENIE), TPDS 2020, for the allowance and the placement by predicted rate; what becomes of the
    other jobs, speeds by GPU type in place of its fitted model, and the ends of those before a job, are ours.
    """

    preemptive: ClassVar[bool] = False
    card: ClassVar[Card] = Card(
        Family.DEADLINE,
        "Chen et al.: GENIE, IEEE TPDS 2020",
        left_out=("Other sizes: a job keeps the number of GPUs that it asks for.",),
        needs=(Input.DEADLINE, Input.DURATION, Input.SPEED),
        uses=(Use.ORDER, Use.GPU_TYPE),
        on_slurm=(
            "The paper fits a job's rate in a profiling run; here it is the user's hint or the history of jobs alike.",
            "A job of one node that names no type is sent to its fastest one where placement.types is on.",
        ),
    )

    estimator: Estimator = field(default_factory=Hint)
    speeds: SpeedEstimator = field(default_factory=Alike)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, due_s = snapshot.jobs, deadline_s(snapshot.jobs)
        there, run_s = market(snapshot, self.speeds), remaining_s(self.estimator, snapshot)
        best = there.speed.max(axis=1, initial=0.0)
        left_s = np.divide(run_s, best, out=run_s.copy(), where=best > 0)
        allowance_s = np.where(np.isfinite(left_s), due_s - snapshot.now_s - np.where(np.isfinite(left_s), left_s, 0.0),
                               np.inf)  # fmt: skip
        in_time = np.isfinite(allowance_s) & (allowance_s >= 0)
        order = ordered(jobs, ~in_time, np.where(in_time, allowance_s, jobs.attained_gpu_s))
        late = int((active(snapshot) & (allowance_s < 0)).sum())
        notes = missing(active(snapshot), due_s, left_s)
        notes += (f"{some(late, 'job')} cannot meet the deadline any more",) if late else ()
        why = {"in_time": in_time.astype(np.int64), "allowance_s": allowance_s}
        alike = bool((there.speed == best[:, None]).all(axis=1)[there.active].all())
        wants = None if alike else Wants(gpu_type=Labels.of(self._types(snapshot, there, run_s, order)))
        return Ranking(order, why=why, notes=notes, wants=wants)

    def _types(self, snapshot: Snapshot, there: Market, run_s: Floats, order: Int64s) -> list[str]:
        """The type on which each of the first MOST_JOBS that wait is predicted to end first, "" for all others.

        Jobs are taken in order, and those before a job hold their GPUs on their types until they end.
        """
        jobs, found = snapshot.jobs, [""] * len(snapshot.jobs)
        free_s = _free_s(snapshot, there, self.estimator)
        waits = jobs.pending & there.active
        for row in order[waits[order]][:MOST_JOBS].tolist():
            gpus, choices = int(jobs.gpus[row]), list[tuple[float, float, float, int]]()
            for column, times_s in enumerate(free_s):
                speed = float(there.speed[row, column])
                if speed > 0 and gpus <= len(times_s):
                    start_s = float(times_s[gpus - 1])
                    choices.append((start_s + float(run_s[row]) / speed, start_s, -speed, column))
            end_s, _, _, column = min(choices)
            found[row] = there.types[column]
            free_s[column][:gpus] = end_s
            free_s[column].sort()
        return found

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When the next job that waits can no longer meet its deadline [Unix s], infinity if none is about to."""
        waits = ~running & ~snapshot.jobs.finished & (ranking.why["in_time"] > 0)
        return snapshot.now_s + float(np.min(ranking.why["allowance_s"], initial=np.inf, where=waits)) + 1.0


def _free_s(snapshot: Snapshot, there: Market, estimator: Estimator) -> list[Floats]:
    """When each GPU of each type is free, ascending [Unix s]: now, at the predicted end of the job that holds it, or
    never as far as is known.

    A run time is counted on the reference type, so that a job is through sooner or later by its speed where it is.
    """
    jobs, nodes, held, now_s = snapshot.jobs, snapshot.nodes, snapshot.allocations, snapshot.now_s
    column = np.array([there.types.index(gpu_type(text)) for text in nodes.gpu_types], np.int64)
    total_s = estimator.estimate(snapshot).total_s
    row_of = {job: row for row, job in enumerate(jobs.job_id.tolist())}
    node_of = {name: node for node, name in enumerate(nodes.name)}
    free_s: list[list[float]] = [[] for _ in there.types]
    known = np.zeros(len(nodes), np.int64)
    for job, name, gpus in zip(held.job_id.tolist(), held.node, held.gpus.tolist(), strict=True):
        row, node = row_of.get(job), node_of.get(name)
        if row is None or node is None or nodes.closed[node]:
            continue
        speed = float(there.speed[row, column[node]])
        left_s = float(total_s[row]) / speed - float(jobs.executed_s[row]) if speed > 0 else math.inf
        free_s[column[node]] += [now_s + max(left_s, 0.0) if math.isfinite(left_s) else math.inf] * gpus
        known[node] += gpus
    for node in np.flatnonzero(~nodes.closed).tolist():
        others = max(int(nodes.gpus_used[node]) - int(known[node]), 0)
        free = max(int(nodes.gpus[node]) - int(known[node]) - others, 0)
        free_s[column[node]] += [now_s] * free + [math.inf] * others
    return [np.sort(np.array(times, np.float64)) for times in free_s]
