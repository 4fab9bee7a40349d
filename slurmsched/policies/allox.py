"""AlloX: jobs and the places in the queues of GPUs are matched so that the sum of all completion times is least."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np

from slurmsched.allocation import rounds
from slurmsched.allocation.heterogeneity import HeterogeneousCluster, heterogeneous_cluster
from slurmsched.allocation.job_times import remaining_on_reference_s
from slurmsched.allocation.space_sharing import TimeShares
from slurmsched.estimators.requested_time import Hint
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.ordering import arrival_s, ordered
from slurmsched.model.parameters import Count, Period, Seconds, Weight, check_choice, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION, ROUND_CRITERIA, ROUNDS_ARE_LEASES
from slurmsched.protocols import Estimator, SpeedEstimator


@dataclass(frozen=True, slots=True)
class Allox:
    """Matches jobs with places in the queues of GPUs so that the sum of all completion times is least.

    A job at place k from the end of a GPU's queue costs k times its run time there. The first job of each queue keeps
    the GPU until it ends. A gang is matched as one job of one GPU and gets 1 / GPUs of the time.
    alpha: share of the jobs without a GPU that a matching considers, the earliest first; at least as many as GPUs.
    most_jobs: most jobs of one matching.
    round_s: length of a round [s].
    fill: other jobs get GPUs that become free within a round.
    reset_s: least time between two matchings [s].
    speeds: source of speeds by GPU type.
    estimator: source of expected run times.
    Raises ConfigError for a parameter out of range.
    Source: Le et al. (AlloX), EuroSys '20, for the matching. Rounds and gangs are as released with Gavel (c4fa400) and
    Shockwave (8a44f4a). most_jobs is ours.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.HETEROGENEITY,
        "Le et al.: AlloX, EuroSys 2020",
        packages=("scipy",),
        needs=(PolicyInput.SPEED, PolicyInput.DURATION),
        uses=(PolicyLever.ORDER, PolicyLever.GPU_TYPE, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(NEEDS_PREEMPTION, ROUNDS_ARE_LEASES, "CPU jobs are not matched: only GPUs are."),
        criteria=ROUND_CRITERIA,
    )

    alpha: Weight = 0.2
    most_jobs: Count = 500
    round_s: Period = 360.0
    fill: bool = True
    reset_s: Seconds = rounds.RESET_S
    speeds: SpeedEstimator = field(default_factory=EqualSpeeds)
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choice("fill", self.fill, (True, False))

    def rank(self, snapshot: Snapshot) -> Ranking:
        cluster = heterogeneous_cluster(snapshot, self.speeds)
        book = rounds.open_rounds(snapshot, cluster, self.round_s)
        notes: tuple[str, ...] = ()
        rules = self._rules()
        if rounds.round_is_over(book, snapshot.now_s, rules):
            to_come_s, notes = remaining_on_reference_s(self.estimator, snapshot, book.done_s)
            before, queues = np.nan_to_num(book.share), rounds.fastest_first(cluster)
            shares = partial(self._shares, snapshot, cluster, to_come_s, before)
            rounds.begin_round(book, snapshot, cluster, rules, lambda: TimeShares(shares()), queues)
        return rounds.round_ranking(book, snapshot, cluster, self.fill, notes)

    def _rules(self) -> rounds.RoundRules:
        return rounds.RoundRules(self.round_s, self.reset_s)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The end of the round [Unix s], infinity without jobs."""
        return rounds.round_end_s(ranking, running, self.round_s)

    def _shares(self, snapshot: Snapshot, cluster: HeterogeneousCluster, to_come_s: Floats, before: Floats) -> Floats:
        """Share of each job on each type: as before, and who is now first in the queue of a GPU. (N, T)."""
        share = np.where(cluster.active[:, None], before, 0.0)
        settled = cluster.active & (share.sum(axis=1) >= 1.0)
        free = np.maximum(cluster.capacity - (share[settled] >= 1.0).sum(axis=0), 0.0).astype(np.int64)
        earliest = ordered(snapshot.jobs, arrival_s(snapshot.jobs))
        rows = earliest[(cluster.active & ~settled)[earliest]]
        rows = rows[: min(max(int(self.alpha * len(rows)), int(free.sum())), self.most_jobs)]
        if not len(rows) or not free.sum():
            return share
        speed = cluster.speed[rows]
        cost_s = to_come_s[rows, None] / np.where(speed > 0, speed, 1e-10)
        first, column = first_of_queues(cost_s, free)
        runs = speed[first, column] > 0
        share[rows[first[runs]], column[runs]] = 1.0 / cluster.gpus[rows[first[runs]]]
        return share


def first_of_queues(cost_s: Floats, free: Int64s) -> tuple[Int64s, Int64s]:
    """The first job of each GPU, and the column of its type, with the least sum of all completion times. (F,), (F,).

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
