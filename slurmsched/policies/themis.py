"""Finish-time fairness: Themis, and its forms in later simulators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np

from slurmsched.allocation.elastic import JobSizes, sizes_of, without_curve
from slurmsched.allocation.finish_time import (
    Apps,
    FinishTimes,
    app_bids,
    apps,
    auction,
    contending,
    isolated_columns,
    least_worst_shares,
)
from slurmsched.allocation.job_memory import NEVER_S, ORIGIN, origin_s, recall, remembered
from slurmsched.allocation.job_times import expected_remaining_s
from slurmsched.allocation.leases import Leases, contenders, leases, who_gets_gpus
from slurmsched.errors import ConfigError
from slurmsched.estimators.requested_time import Hint
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import JobChanges, PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.ordering import arrival_s, chance_of, ordered
from slurmsched.model.parameters import Part, Range, Seconds, check_choice, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION, RESIZE_BY_REQUEUE, ROUNDS_ARE_LEASES
from slurmsched.plain_text import pluralize
from slurmsched.protocols import CurveEstimator, Estimator, SpeedEstimator

VARIANTS = ("auction", "sort", "minmax")
LEFTOVERS = ("rho", "random")
APPS = ("job", "name")
MOST_BIDDERS = 200  # of one auction, the worst off first: its cost is bidders times GPUs (ours)


@dataclass(frozen=True, slots=True)
class Themis:
    """The job whose finish is furthest behind that on its own 1/N of the cluster goes first.

    variant: "auction": the worst-off jobs bid for free GPUs (the paper). "sort": by rho (the simulators of Muri and
        Blox). "minmax": shares of time with the least largest rho, in turns by share over received time (Gavel's
        finish_time_fairness, on one GPU type).
    fairness: share of the competing jobs, the best off, that is not offered GPUs in an auction (the paper's f).
    lease_s: how long a job keeps GPUs that it got [s]; 0: it competes in each cycle, as in rounds of other systems.
    elastic: in an auction, a job with hints min_gpus and max_gpus bids for any doubling between them, as in the paper.
        False: it bids for its gang alone, as a job that holds GPUs always does.
    serial: share of a job's work that more GPUs do not speed up (Amdahl's law).
    leftovers: what the auction leaves goes to the other jobs by "rho", or at "random" as in the paper: drawn for each
        job and each lease.
    apps: "job": each job is an app of one gang. "name": jobs of one account and user whose names differ in case and
        numbers only are one app, such as a hyper-parameter search. It counts once, and bids for any number of its jobs.
    speeds: a table of throughputs by number of GPUs replaces Amdahl's law.
    estimator: source of expected run times. A job without one counts as if it will run as long again as it ran.
    Raises ConfigError for a parameter out of range.
    Source: Mahajan et al. (Themis), NSDI '20, for rho, leases, filter, bid tables and auction; its defaults are not
    verified. Narayanan et al. (Gavel), OSDI '20, for "minmax". Ours: sizes by Amdahl's law; leftovers by rho. Left out:
    bids that distinguish near GPUs from far ones, and leftovers near an app's GPUs.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.FAIRNESS,
        "Mahajan et al.: Themis, NSDI 2020",
        left_out=(
            "Bids that distinguish near GPUs from far ones, and leftovers near an app's GPUs: the placement "
            "chooses GPUs.",
        ),
        needs=(PolicyInput.DURATION, PolicyInput.SERVICE),
        uses=(PolicyLever.ORDER, PolicyLever.REQUEUE, PolicyLever.SIZE),
        on_slurm=(NEEDS_PREEMPTION, ROUNDS_ARE_LEASES, "With elastic = true: " + RESIZE_BY_REQUEUE),
        criteria={"in_lease": "in its lease"},
    )

    variant: str = "auction"
    fairness: Annotated[float, Range(0.0, 0.999999)] = 0.8  # at 1 no job is offered GPUs
    lease_s: Seconds = 1_200.0
    elastic: bool = False
    serial: Part = 0.02
    leftovers: str = "rho"
    apps: str = "job"
    speeds: SpeedEstimator = field(default_factory=EqualSpeeds)
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choice("variant", self.variant, VARIANTS)
        check_choice("elastic", self.elastic, (True, False))
        check_choice("leftovers", self.leftovers, LEFTOVERS)
        if self.leftovers == "random" and not self.lease_s:
            raise ConfigError('"random" is drawn for each lease: needs lease_s above 0', key="policy.leftovers")
        if isinstance(self.speeds, CurveEstimator) and not self.elastic:
            raise ConfigError("needs elastic = true", key="policy.speeds")
        check_choice("apps", self.apps, APPS)
        if self.apps != "job" and (self.elastic or self.variant == "minmax"):
            other = "elastic = true" if self.elastic else 'variant = "minmax"'
            raise ConfigError(f'cannot be combined with {other}; use "job"', key="policy.apps")

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, held_leases = snapshot.jobs, leases(snapshot, self.lease_s)
        remaining_s, unknown = self._remaining_s(snapshot)
        searches = apps(snapshot, remaining_s) if self.apps == "name" else None
        if searches is None:
            columns = isolated_columns(snapshot)
            times = self._times(snapshot, remaining_s, columns)
        else:
            columns, times = {"executed_s": jobs.executed_s}, searches.of_jobs
        may = contenders(snapshot, held_leases)
        urgency, part, changes = self._urgency(snapshot, held_leases, times, may, searches)
        order = ordered(jobs, ~held_leases.in_force, urgency, self._rest(snapshot, times, urgency))
        sizes = None if changes is None or changes.gpus is None else np.where(changes.gpus > 0, changes.gpus, jobs.gpus)
        renewed = held_leases.renewed(who_gets_gpus(snapshot, order, held_leases.in_force | may, sizes), part)
        notes = (
            [f"{pluralize(unknown, 'job')} without an expected run time: taken to run as long again"] if unknown else []
        )
        notes += without_curve(snapshot, may, self.speeds) if self.elastic else ()
        why = {"rho": times.rho, "in_lease": held_leases.in_force, "urgency": urgency}
        carry: Mapping[str, Any] = remembered(jobs, renewed | columns)
        if self.leftovers == "random":
            carry = {**carry, ORIGIN: origin_s(snapshot)}
        if searches is not None:
            carry, why = {**carry, **searches.carry}, {**why, "app": searches.of}
        return Ranking(order, why=why, carry=carry, notes=tuple(notes), changes=changes)

    def _remaining_s(self, snapshot: Snapshot) -> tuple[Floats, int]:
        """Run time still to come of each job, and how many that contend have no expected one. (N,) [s]."""
        jobs, remaining_s = snapshot.jobs, expected_remaining_s(self.estimator, snapshot)
        unknown = np.isinf(remaining_s)
        remaining_s = np.where(unknown, np.maximum(jobs.executed_s, max(self.lease_s, 1.0)), remaining_s)
        return remaining_s, int((unknown & contending(snapshot)).sum())

    def _times(self, snapshot: Snapshot, remaining_s: Floats, columns: dict[str, Floats]) -> FinishTimes:
        """The times of each job."""
        elapsed_s = np.maximum(snapshot.now_s - arrival_s(snapshot.jobs), 0.0)
        isolated_s = columns["isolated_s"] + remaining_s * columns["stretch"]
        return FinishTimes(np.where(np.isnan(elapsed_s), 0.0, elapsed_s), remaining_s, isolated_s)

    def _urgency(
        self, snapshot: Snapshot, held_leases: Leases, times: FinishTimes, may: Bools, searches: Apps | None
    ) -> tuple[Floats, Floats, JobChanges | None]:
        """Key of the order, least first; part of a lease that each would get; wants. (N,) each."""
        whole = np.ones(len(may))
        if self.variant == "sort":
            return -times.rho, whole, None
        if self.variant == "minmax":
            share = least_worst_shares(snapshot, times)
            received = np.minimum(snapshot.jobs.executed_s / np.maximum(times.elapsed_s, 1e-9), 1.0)
            return -share / np.maximum(received, 1e-9), whole, JobChanges(share=share)
        if searches is not None:
            return *self._auction_of_apps(snapshot, held_leases, searches, may), None
        return self._auction(snapshot, held_leases, times, may)

    def _rest(self, snapshot: Snapshot, times: FinishTimes, urgency: Floats) -> Floats:
        """Key among equals of an auction or a sort, least first: worst rho, or chance for who won nothing. (N,)."""
        if self.variant != "auction" or self.leftovers == "rho":
            return -times.rho
        chance = chance_of(snapshot.jobs, snapshot.seed, self._lease(snapshot))
        return np.where(urgency > 0, chance, -times.rho)

    def _auction(
        self, snapshot: Snapshot, held_leases: Leases, times: FinishTimes, may: Bools
    ) -> tuple[Floats, Floats, JobChanges | None]:
        """The auction of GPUs that no lease keeps: 0 for winners and 1 for others, the part of a lease of each, and
        sizes. (N,)."""
        jobs = snapshot.jobs
        gpus = jobs.gpus.astype(np.int64)
        offered = _offered(snapshot, held_leases)
        urgency, part, sizes = np.ones(len(gpus)), np.ones(len(gpus)), np.zeros(len(gpus), np.int32)
        rows = self._bidders(snapshot, times, may & (gpus > 0))
        if len(rows) and offered > 0:
            bids, speed = self._bids(snapshot, rows, held_leases)
            wins, part[rows] = auction(self._gains(times, rows, speed), bids, offered)
            won = np.flatnonzero(wins >= 0)
            urgency[rows[won]] = 0.0
            sizes[rows[won]] = bids[won, wins[won]]
        sizes[sizes == gpus] = 0
        return urgency, part, JobChanges(gpus=sizes) if sizes.any() else None

    def _auction_of_apps(
        self, snapshot: Snapshot, held_leases: Leases, searches: Apps, may: Bools
    ) -> tuple[Floats, Floats]:
        """As _auction: an app bids for its first jobs, and what it wins is theirs. (N,), (N,)."""
        gpus, offered = snapshot.jobs.gpus.astype(np.int64), _offered(snapshot, held_leases)
        urgency, part = np.ones(len(gpus)), np.ones(len(gpus))
        order = ordered(snapshot.jobs, -searches.of_jobs.rho)
        rows = order[(may & (gpus > 0))[order]]
        worst = list(dict.fromkeys(searches.of[rows].tolist()))
        worst = worst[: min(int(np.ceil((1 - self.fairness) * len(worst))), MOST_BIDDERS)]
        rows = rows[np.isin(searches.of[rows], worst)]
        if len(rows) and offered > 0:
            made = app_bids(searches, rows, gpus, held_leases.in_force)
            wins, kept = auction(self._gains(searches.times, made.app, made.speed, made.without), made.gpus, offered)
            for bidder in np.flatnonzero(wins >= 0).tolist():
                first = made.first(bidder, gpus, int(wins[bidder]))
                urgency[first], part[first] = 0.0, kept[bidder]
        return urgency, part

    def _bids(self, snapshot: Snapshot, rows: Int64s, held_leases: Leases) -> tuple[Int64s, Floats]:
        """GPUs of each bid, (B, K), and speed there over that on all that the job asks for, 0 = no bid. (B, K).

        Who holds GPUs bids for those alone: on Slurm a job that runs keeps its size.
        """
        tables = [JobSizes(np.array([each]), np.ones(1)) for each in snapshot.jobs.gpus[rows].tolist()]
        if self.elastic:
            free = np.flatnonzero(held_leases.run_s[rows] <= NEVER_S).tolist()
            for bidder, table in zip(
                free, sizes_of(snapshot, rows[free].tolist(), self.serial, self.speeds), strict=True
            ):
                tables[bidder] = table
        most = max(len(each.gpus) for each in tables)
        gpus, speed = np.ones((len(rows), most), np.int64), np.zeros((len(rows), most))
        for bidder, each in enumerate(tables):
            gpus[bidder, : len(each.gpus)], speed[bidder, : len(each.gpus)] = each.gpus, each.speed
        return gpus, speed

    def _gains(self, times: FinishTimes, rows: Int64s, speed: Floats, without: Floats | None = None) -> Floats:
        """log(1 / rho) of each bid less that without it for a lease; 0 where speed is. (B, K).

        without: (B, 1) speed without any bid; None = 0.
        """
        elapsed_s, remaining_s = times.elapsed_s[rows, None], times.remaining_s[rows, None]
        to_come_s = self._to_come_s(remaining_s, speed)
        nothing_s = np.maximum(elapsed_s + remaining_s, 1.0) + max(self.lease_s, 1.0)
        if without is not None:
            nothing_s = np.maximum(elapsed_s + self._to_come_s(remaining_s, without), 1.0)
        return np.asarray(np.where(speed > 0, np.log(nothing_s / np.maximum(elapsed_s + to_come_s, 1.0)), 0.0))

    def _to_come_s(self, remaining_s: Floats, speed: Floats) -> Floats:
        """Until the end, at this speed for a lease and then at full speed. (B, K) [s]."""
        lease_s = max(self.lease_s, 1.0)
        soon_s = np.divide(remaining_s, speed, out=np.full(speed.shape, np.inf), where=speed > 0)
        return np.asarray(np.where(soon_s <= lease_s, soon_s, lease_s + remaining_s - lease_s * speed))

    def _bidders(self, snapshot: Snapshot, times: FinishTimes, may: Bools) -> Int64s:
        """Rows of the fraction 1 - f of those that contend with the worst rho, at least one if any does."""
        order = ordered(snapshot.jobs, -times.rho)
        rows = order[may[order]]
        return rows[: min(int(np.ceil((1 - self.fairness) * len(rows))), MOST_BIDDERS)]

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When the next lease of jobs that hold GPUs ends, or the remaining GPUs are drawn again [Unix s]."""
        held_leases, lease_s = leases(snapshot, self.lease_s), max(self.lease_s, 1.0)
        end_s = held_leases.next_end_s(recall(snapshot.jobs, ranking.carry, ("until_s",)), running)
        drawn = self.variant == "auction" and self.leftovers == "random"
        return min(end_s, origin_s(snapshot) + (self._lease(snapshot) + 1) * lease_s) if drawn else end_s

    def _lease(self, snapshot: Snapshot) -> int:
        """Number of leases since the first cycle: the remaining GPUs are drawn again with each."""
        return int((snapshot.now_s - origin_s(snapshot)) // max(self.lease_s, 1.0))


def _offered(snapshot: Snapshot, held_leases: Leases) -> int:
    """GPUs that no lease keeps."""
    return int(snapshot.nodes.gpus[~snapshot.nodes.down].sum()) - int(snapshot.jobs.gpus[held_leases.in_force].sum())
