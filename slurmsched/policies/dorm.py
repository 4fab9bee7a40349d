"""The fullest cluster that is fair enough and changes few jobs: Dorm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.allocation.solver import Programme, solve, water_fill
from slurmsched.allocation.tenants import check_weights, unused_weights, weights_of
from slurmsched.model import JobChanges, PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.hints import hint_column
from slurmsched.model.ordering import arrival_s, ordered
from slurmsched.model.parameters import Count, Weight, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION
from slurmsched.resources.allocated import holding
from slurmsched.resources.startable_jobs import startable

NODES = 200  # of the search tree; the best solution by then is used (ours)
FAIR, EARLY = 1_000.0, 1e-3  # price of fairness lost beyond the bound, and of a GPU for the last to come


@dataclass(frozen=True, slots=True, eq=False)
class DormJobs:
    """Of the jobs in one programme: (A,) rows of jobs, least and most GPUs of each, what it holds, and its weight."""

    rows: Int64s
    low: Floats
    high: Floats
    held: Floats
    weight: Floats


@dataclass(frozen=True, slots=True)
class Dorm:
    """As many GPUs in use as possible, with limits on unfairness and on the running jobs that are changed.

    A job with hints min_gpus and max_gpus may have any size between them. Any other job has all its GPUs or none. If
    the limit of unfairness cannot be kept, it is exceeded by as little as possible.
    theta1: the sum of distances of GPU shares from max-min fair ones is at most 2 theta1.
    theta2: share of the running jobs that one cycle may resize or stop.
    most_jobs: most jobs of one programme, running jobs and then the earliest waiting ones.
    weights: weights for the fair shares, "KIND:NAME=WEIGHT" each; KIND is qos, user or account.
    Raises ConfigError for a parameter out of range.
    Source: Sun et al. (Dorm), SMARTCOMP '17, for the programme; its defaults are not verified. Ours: GPUs as the only
    resource, the price of exceeding the limit, most_jobs.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.FAIRNESS,
        "Sun et al.: Dorm, IEEE SMARTCOMP 2017",
        packages=("scipy",),
        left_out=("Several resources: GPUs are the only one, so the fair share is of GPUs alone.",),
        needs=(PolicyInput.SIZES,),
        uses=(PolicyLever.ORDER, PolicyLever.SIZE, PolicyLever.REQUEUE),
        on_slurm=(NEEDS_PREEMPTION, "A running job changes its size only by a requeue."),
        criteria={"given_gpus": "given {} GPUs"},
    )

    theta1: Weight = 0.1
    theta2: Weight = 0.1
    most_jobs: Count = 100
    weights: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_ranges(self)
        check_weights(self.weights)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, sizes = snapshot.jobs, self._sizes(snapshot)
        given = self._solved(snapshot, sizes)
        gpus = np.zeros(len(jobs), np.int32)
        gpus[sizes.rows] = given
        elastic = np.zeros(len(jobs), np.bool_)
        elastic[sizes.rows] = sizes.low < sizes.high
        changes = JobChanges(gpus=np.where(elastic, gpus, 0).astype(np.int32)) if elastic.any() else None
        notes = unused_weights(snapshot, self.weights)
        return Ranking(ordered(jobs, gpus == 0), why={"given_gpus": gpus}, notes=notes, changes=changes)

    def _sizes(self, snapshot: Snapshot) -> DormJobs:
        """The jobs to decide on, in ascending submission and id."""
        jobs, runs = snapshot.jobs, holding(snapshot.jobs) & (snapshot.jobs.gpus > 0)
        may = runs | (startable(snapshot) & (jobs.gpus > 0))
        order = ordered(jobs, ~runs)
        rows = order[may[order]][: self.most_jobs]
        rows = rows[np.lexsort((jobs.job_id[rows], arrival_s(jobs)[rows]))]
        asked = jobs.gpus.astype(np.float64)
        low, high = hint_column(jobs, "min_gpus"), hint_column(jobs, "max_gpus")
        elastic = ~(np.isnan(low) | np.isnan(high))
        held = np.where(runs, asked, 0.0)
        return DormJobs(rows, np.where(elastic, low, asked)[rows], np.where(elastic, high, asked)[rows], held[rows],
                     weights_of(jobs, self.weights)[rows])  # fmt: skip

    def _solved(self, snapshot: Snapshot, sizes: DormJobs) -> Int64s:
        """GPUs of each job to decide on, 0 = none. (A,) int64."""
        total = int(snapshot.nodes.gpus[~snapshot.nodes.down].sum())
        if not len(sizes.rows) or not total:
            return np.zeros(len(sizes.rows), np.int64)
        found = solve(programme(sizes, total, self.theta1, self.theta2), gap=1e-4, nodes=NODES)
        kept: Floats = sizes.held if found.x is None else np.round(found.x[: len(sizes.rows)])
        return kept.astype(np.int64)


# Over 30 lines: the matrices of one programme; their columns must agree.
def programme(sizes: DormJobs, total: int, theta1: float, theta2: float) -> Programme:
    """The mixed-integer programme over, each (A,): GPUs, whether it runs, whether it changes, distance from its fair
    GPUs; and the fairness lost beyond the bound."""
    count = len(sizes.rows)
    one, none = np.eye(count), np.zeros((count, count))
    fair = water_fill(sizes.high, sizes.weight, float(total))
    runs = sizes.held > 0
    spread = np.maximum(sizes.high, sizes.held)
    gpus_row, changes_row, loss_row = (np.zeros((1, 4 * count + 1)) for _ in range(3))
    gpus_row[0, :count] = 1.0
    changes_row[0, 2 * count : 3 * count] = runs
    loss_row[0, 3 * count : 4 * count], loss_row[0, -1] = 1.0, -1.0
    blocks = (
        ([one, -np.diag(sizes.high), none, none], np.zeros(count)),
        ([-one, np.diag(sizes.low), none, none], np.zeros(count)),
        ([one, none, -np.diag(spread), none], np.where(runs, sizes.held, spread)),
        ([-one, none, -np.diag(spread), none], np.where(runs, -sizes.held, 0.0)),
        ([one, none, none, -one], fair),
        ([-one, none, none, -one], -fair),
    )
    rows = [np.hstack([*block, np.zeros((count, 1))]) for block, _ in blocks]
    bounds = [bound for _, bound in blocks]
    least_changes = float(math.ceil(theta2 * int(runs.sum())))
    late = EARLY * np.arange(count) / count
    cost = np.concatenate([late - 1.0, np.zeros(3 * count), [FAIR]])
    high = np.concatenate([sizes.high, np.ones(2 * count), np.full(count, float(total)), [np.inf]])
    whole = np.concatenate([np.ones(3 * count, np.bool_), np.zeros(count + 1, np.bool_)])
    return Programme(
        cost, np.zeros(4 * count + 1), high, np.vstack([*rows, gpus_row, changes_row, loss_row]),
        np.concatenate([*bounds, [float(total), least_changes, 2 * theta1 * total]]), whole=whole,
    )  # fmt: skip
