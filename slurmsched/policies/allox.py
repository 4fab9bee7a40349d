"""AlloX: jobs and the places in the queues of GPUs are matched so that the sum of all completion times is least."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np

from slurmsched.estimators.alike import Alike
from slurmsched.estimators.hint import Hint
from slurmsched.model import Card, Family, Input, Ranking, Snapshot, Use
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.policies import rounds
from slurmsched.policies.cards import PREEMPTS, ROUNDS
from slurmsched.policies.checks import check_choice
from slurmsched.policies.gpu_market import Market, market
from slurmsched.policies.left import left_s
from slurmsched.policies.order import arrival_s, ordered
from slurmsched.policies.pairs import Allocation
from slurmsched.policies.ranges import Count, Period, Seconds, Weight, check_ranges
from slurmsched.protocols import Estimator, SpeedEstimator


@dataclass(frozen=True, slots=True)
class Allox:
    """A job in place k from the end of a GPU's queue costs k times its run time there; the cheapest matching counts.

    alpha: part of the jobs without a GPU, the earliest, that a matching looks at, though at least as many as there are
    GPUs. most_jobs: and no more than these. round_s: [s]. fill: whether GPUs that come free within a round go to
    other jobs. reset_s: least time from one matching to the next [s]. released: as the released simulators (see gavel).
    speeds, estimator: where speeds and run times come from.
    Who is first on a GPU has it until it ends; a gang is matched as one job of one GPU and has 1 / GPUs of the time.
    Raises ConfigError for a parameter out of range.
    Source: Le et al. (AlloX), EuroSys '20, for the matching; rounds, and what a gang is given, as released with
    Gavel (c4fa400) and Shockwave (8a44f4a); most_jobs is ours.
    """

    preemptive: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.HETEROGENEITY,
        "Le et al.: AlloX, EuroSys 2020",
        needs=(Input.SPEED, Input.DURATION),
        uses=(Use.ORDER, Use.GPU_TYPE, Use.REQUEUE, Use.START),
        on_slurm=(PREEMPTS, ROUNDS, "CPU jobs are not matched: only GPUs are."),
    )

    alpha: Weight = 0.2
    most_jobs: Count = 500
    round_s: Period = 360.0
    fill: bool = True
    reset_s: Seconds = rounds.RESET_S
    released: bool = False
    speeds: SpeedEstimator = field(default_factory=Alike)
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choice("released", self.released, (True, False))
        check_choice("fill", self.fill, (True, False))

    def rank(self, snapshot: Snapshot) -> Ranking:
        here = market(snapshot, self.speeds)
        book = rounds.opened(snapshot, here, self.round_s)
        notes: tuple[str, ...] = ()
        rules = rounds.Rules(self.round_s, self.reset_s, released=self.released)
        if rounds.over(book, snapshot.now_s, rules):
            to_come_s, notes = left_s(self.estimator, snapshot, book.done_s)
            before, queues = np.nan_to_num(book.share), rounds.fastest_first(here)
            shares = partial(self._shares, snapshot, here, to_come_s, before)
            rounds.begin(book, snapshot, here, rules, lambda: Allocation(shares()), queues)
        return rounds.ranking(book, snapshot, here, self.fill, notes)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The end of the round [Unix s], infinity without jobs."""
        return rounds.round_end_s(ranking, running, self.round_s) if running.any() else math.inf

    def _shares(self, snapshot: Snapshot, here: Market, to_come_s: Floats, before: Floats) -> Floats:
        """Share of each job on each type: as before, and who is now first in the queue of a GPU. (N, T)."""
        share = np.where(here.active[:, None], before, 0.0)
        settled = here.active & (share.sum(axis=1) >= 1.0)
        free = np.maximum(here.capacity - (share[settled] >= 1.0).sum(axis=0), 0.0).astype(np.int64)
        earliest = ordered(snapshot.jobs, arrival_s(snapshot.jobs))
        rows = earliest[(here.active & ~settled)[earliest]]
        rows = rows[: min(max(int(self.alpha * len(rows)), int(free.sum())), self.most_jobs)]
        if not len(rows) or not free.sum():
            return share
        speed = here.speed[rows]
        cost_s = to_come_s[rows, None] / np.where(speed > 0, speed, 1e-10)
        first, column = first_of_queues(cost_s, free)
        runs = speed[first, column] > 0
        share[rows[first[runs]], column[runs]] = 1.0 / here.gpus[rows[first[runs]]]
        return share


def first_of_queues(cost_s: Floats, free: Int64s) -> tuple[Int64s, Int64s]:
    """Who is first on a GPU, and the column of its type, when the sum of all completion times is least. (F,), (F,).

    cost_s: (N, T) run time of each job on each type, above 0. free: (T,) GPUs of each type, at least one in all.
    The best matching fills places from the end, so that no queue is longer than jobs over GPUs of its type.
    """
    from scipy.optimize import linear_sum_assignment

    type_of_gpu = np.repeat(np.arange(len(free)), free)
    longest = (-(-len(cost_s) // np.maximum(free, 1)))[type_of_gpu]
    place, gpu = np.nonzero(np.arange(1, int(longest.max()) + 1)[:, None] <= longest)
    type_of = type_of_gpu[gpu]
    rows, column = linear_sum_assignment(cost_s[:, type_of] * (place + 1))
    order = np.lexsort((-place[column], gpu[column]))
    foremost = order[np.unique(gpu[column][order], return_index=True)[1]]
    return rows[foremost], type_of[column[foremost]]
