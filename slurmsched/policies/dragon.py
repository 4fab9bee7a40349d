"""Jobs grow while GPUs are idle, and shrink for jobs that wait: Dragon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.allocation.job_times import active, cluster_gpus
from slurmsched.allocation.size_rounds import SizeRound, elastic_jobs, gpus_now, size_ranking, too_large, too_large_note
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import hint_column
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import Period, check_ranges
from slurmsched.model.policy_info import RESIZE_BY_REQUEUE


@dataclass(frozen=True, slots=True)
class Dragon:
    """While a job waits, those that have most of what they may have give GPUs; if none waits, those with least grow.

    Of waiting jobs the one with the smallest least size is served first. Jobs shrink for it only if it can start then.
    They change by one GPU at a time, in turn. A job with hints min_gpus and max_gpus may have any size between them;
    any other job has all its GPUs. No running job is stopped, unless GPUs are missing because nodes are down.
    interval_s: time between two changes of sizes [s].
    Raises ConfigError for a parameter out of range.
    Source: Lin et al. (DRAGON), CLOSER '19, and its release for both orders. Ours: GPUs as the only resource; a job
    starts with its least size.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.ELASTIC,
        "Lin et al.: DRAGON, CLOSER 2019",
        left_out=(
            "Parameter servers: a job is its GPUs.",
            "Nodes near each other: the placement chooses them.",
        ),
        needs=(PolicyInput.SIZES,),
        uses=(PolicyLever.ORDER, PolicyLever.SIZE, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(RESIZE_BY_REQUEUE,),
        criteria={"given_gpus": "given {} GPUs"},
    )

    interval_s: Period = 60.0

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        who, before = active(snapshot), SizeRound.of(snapshot, "dragon")
        large = too_large(snapshot)
        if before.over(snapshot):
            before = before.begun(snapshot, self._given(snapshot, who & ~large, before.given), self.interval_s)
        return size_ranking(snapshot, ordered(snapshot.jobs, before.given == 0), before, too_large_note(large))

    def _given(self, snapshot: Snapshot, who: Bools, given: Int64s) -> Int64s:
        """GPUs of each job from now on. given: (N,) those of the round before. (N,)."""
        jobs, elastic = snapshot.jobs, elastic_jobs(snapshot)
        low, high = (np.where(elastic, hint_column(jobs, name), jobs.gpus) for name in ("min_gpus", "max_gpus"))
        rows = ordered(jobs)
        rows = rows[who[rows]]
        has = np.where(given > 0, given, gpus_now(snapshot))
        made = np.zeros(len(jobs), np.int64)
        made[rows] = shared_by_load(has[rows], low[rows], high[rows], cluster_gpus(snapshot))
        return made

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When sizes may change next [Unix s]; infinity if there are no jobs."""
        return SizeRound.next_s(snapshot, ranking, "dragon")


def shared_by_load(has: Int64s, low: Floats, high: Floats, gpus: int) -> Int64s:
    """GPUs of each job from now on. (J,).

    has: (J,) those that each has, 0 of one that waits; of equals the first is served first.
    low, high: (J,) least and most of each.
    gpus: of the cluster.
    """
    given, least = has.copy(), low.astype(np.int64)
    while (missing := int(given.sum()) - gpus) > 0 and not _shrunk(given, least, high, missing):
        given[np.flatnonzero(given)[-1]] = 0  # nodes are down: the last job goes
    free = gpus - int(given.sum())
    waiting = np.flatnonzero(given == 0)
    for job in waiting[np.argsort(least[waiting], kind="stable")].tolist():
        if not _shrunk(given, least, high, int(least[job]) - free):
            return given
        given[job] = least[job]
        free = gpus - int(given.sum())
    while free > 0 and (more := np.flatnonzero(given < high)).size:
        first = more[np.argsort(fulfilment(given, low, high)[more], kind="stable")][:free]
        given[first] += 1
        free -= len(first)
    return given


def _shrunk(given: Int64s, low: Int64s, high: Floats, need: int) -> bool:
    """Whether the jobs could give that many GPUs; then they have given them, those that have most of what they may have
    first, one GPU at a time."""
    if np.maximum(given - low, 0).sum() < need:
        return False
    while need > 0:
        over = np.flatnonzero(given > low)
        first = over[np.argsort(-fulfilment(given, low, high)[over], kind="stable")][:need]
        given[first] -= 1
        need -= len(first)
    return True


def fulfilment(given: Int64s, low: Floats | Int64s, high: Floats) -> Floats:
    """How much of what it may have above its least size each has; 1 of a job of one size. (J,)."""
    return np.where(high > low, (given - low) / np.maximum(high - low, 1), 1.0)
