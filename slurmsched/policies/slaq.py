"""Each GPU to the job whose loss falls most by it: SLAQ."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from slurmsched.allocation.elastic import JobSizes, give_by_gain, sizes_of, without_curve
from slurmsched.allocation.job_memory import recall, remembered
from slurmsched.allocation.job_times import active, cluster_gpus, total_or_unknown_s
from slurmsched.allocation.loss_curves import LossCurves
from slurmsched.allocation.size_rounds import SizeRound, fixed_sizes, gpus_now, size_ranking, unstoppable
from slurmsched.estimators.requested_time import Hint
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import hint_column, loss_columns
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import Part, Period, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION, RESIZE_BY_REQUEUE
from slurmsched.plain_text import pluralize_of
from slurmsched.protocols import Estimator, SpeedEstimator

POINTS = 10  # of a loss curve
NONE = -1.0  # in a carry: no such number


@dataclass(frozen=True, slots=True)
class Slaq:
    """First each job gets its least size. Then each GPU goes to the job whose loss falls most by it in the round.

    A curve through the losses that a job told predicts how far the loss falls. Its fall counts over the largest fall
    from one round to the next, so that jobs of different losses compare. Jobs get their least size in order of that
    fall for each GPU. A job that reports no loss counts as if its loss fell in equal parts. A job with hints min_gpus
    and max_gpus may have any size between them. Any other job has all its GPUs or none. A running job with the hint
    preempt=no goes first and holds what it holds.
    interval_s: time between two changes of sizes [s].
    serial: share of a job's work that more GPUs do not speed up (Amdahl's law).
    speeds: a table of throughputs by number of GPUs replaces Amdahl's law.
    estimator: source of expected run times, for the pace of a job that has made no progress yet.
    Raises ConfigError for a parameter out of range.
    Source: Zhang et al. (SLAQ), SoCC '17, for prediction, normalisation and the greedy choice. Ours: GPUs in place of
    cores; rounds of minutes in place of seconds; jobs of unknown run time count as one hour from their end.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.ELASTIC,
        "Zhang et al.: SLAQ, SoCC 2017",
        left_out=(
            "Rounds of seconds: a change of size by a requeue costs too much for them.",
            "A least share for each job: on Slurm jobs have a fixed or least size, so those whose loss falls least may "
            "get none.",
        ),
        needs=(PolicyInput.PROGRESS, PolicyInput.SIZES, PolicyInput.SPEED, PolicyInput.DURATION),
        uses=(PolicyLever.ORDER, PolicyLever.SIZE, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(
            NEEDS_PREEMPTION,
            RESIZE_BY_REQUEUE,
            "Slurm knows no losses. A job tells them by the hint loss=, and progress by progress=.",
        ),
        criteria={"given_gpus": "given {} GPUs", "fall": "loss falls by {} of its largest fall"},
    )

    interval_s: Period = 300.0
    serial: Part = 0.02
    speeds: SpeedEstimator = field(default_factory=EqualSpeeds)
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, who, before = snapshot.jobs, active(snapshot), SizeRound.of(snapshot, "slaq")
        losses = _ReportedLosses.of(snapshot)
        if before.over(snapshot):
            losses = losses.now(snapshot, gpus_now(snapshot))
            given, fall = self._given(snapshot, who, losses)
            before = before.begun(snapshot, given, self.interval_s)
            losses = replace(losses, fall=fall)
        order = ordered(jobs, before.given == 0, -losses.fall)
        silent, rows = int((who & np.isnan(losses.loss).all(axis=1)).sum()), int(who.sum())
        notes = without_curve(snapshot, who, self.speeds) + _silent_note(silent, rows)
        ranking = size_ranking(snapshot, order, before, notes)
        carry = {**ranking.carry, **losses.carry(snapshot)}
        return replace(ranking, carry=carry, why={**ranking.why, "fall": losses.fall})

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When sizes may change next [Unix s]; infinity if there are no jobs."""
        return SizeRound.next_s(snapshot, ranking, "slaq")

    def _given(self, snapshot: Snapshot, who: Bools, losses: _ReportedLosses) -> tuple[Int64s, Floats]:
        """GPUs of each job from now on, and how far its loss falls by them until the next round. (N,), (N,)."""
        rows, total = ordered(snapshot.jobs), cluster_gpus(snapshot)
        rows = rows[who[rows]]
        sizes = sizes_of(snapshot, rows.tolist(), self.serial, self.speeds, max(total, 1))
        sizes = fixed_sizes(snapshot, rows, sizes)
        falls = self._falls(snapshot, rows, sizes, losses)
        by_gpu = [-fall[0] / each.gpus[0] for fall, each in zip(falls, sizes, strict=True)]
        first = np.lexsort((by_gpu, ~unstoppable(snapshot)[rows]))
        rows, sizes, falls = rows[first], [sizes[at] for at in first.tolist()], [falls[at] for at in first.tolist()]
        chosen = give_by_gain(sizes, lambda job, now, then: float(falls[job][then] - falls[job][now]), total)
        given, fall = np.zeros(len(snapshot.jobs), np.int64), np.zeros(len(snapshot.jobs))
        given[rows] = chosen
        fall[rows] = [each[max(int(np.searchsorted(size.gpus, gpus)), 0)] if gpus else each[0]
                      for each, size, gpus in zip(falls, sizes, chosen.tolist(), strict=True)]  # fmt: skip
        return given, fall

    def _falls(self, snapshot: Snapshot, rows: Int64s, sizes: list[JobSizes], losses: _ReportedLosses) -> list[Floats]:
        """How far the loss of each job falls in a round on each of its sizes, over its largest fall. (K,) each."""
        total_s = np.maximum(total_or_unknown_s(self.estimator, snapshot), 1.0)
        width = max((len(each.gpus) for each in sizes), default=0)
        speed = np.zeros((len(rows), width))
        for place, each in enumerate(sizes):
            speed[place, : len(each.gpus)] = each.speed
            speed[place, len(each.gpus) :] = each.speed[-1]
        per_s = 1.0 / total_s[rows]
        measured = losses.per_s[rows] > 0
        held = [float(np.interp(gpus, each.gpus, each.speed)) for gpus, each in
                zip(losses.gpus[rows].tolist(), sizes, strict=True)]  # fmt: skip
        per_s = np.where(measured, losses.per_s[rows] / np.maximum(held, 1e-9), per_s)
        done = np.minimum(losses.last_done[rows], 1.0)
        then = np.minimum(done[:, None] + per_s[:, None] * speed * self.interval_s, 1.0)
        fall = LossCurves.of(losses.done[rows], losses.loss[rows]).fall(done, then) / losses.largest[rows][:, None]
        fall = np.where(np.isnan(fall), then - done[:, None], fall)
        return [fall[place, : len(each.gpus)].round(12) for place, each in enumerate(sizes)]


@dataclass(frozen=True, slots=True, eq=False)
class _ReportedLosses:
    """The reports of jobs at the beginning of each round.

    done, loss: (N, POINTS), NaN where there is none, oldest first.
    largest: (N,) largest fall from one round to the next.
    last_done, last_s: (N,) progress and run time [s] at the last round.
    fall: (N,) predicted for this round.
    per_s, gpus: (N,) progress in a second since the round before, 0 if not known, and the GPUs that it was made on.
    """

    done: Floats
    loss: Floats
    largest: Floats
    last_done: Floats
    last_s: Floats
    fall: Floats
    per_s: Floats
    gpus: Floats

    @classmethod
    def of(cls, snapshot: Snapshot) -> _ReportedLosses:
        """As the carry has it."""
        names = (*(f"done_{at}" for at in range(POINTS)), *(f"loss_{at}" for at in range(POINTS)), *_SINGLE)
        known = recall(snapshot.jobs, snapshot.carry, names)
        columns = [np.where(known[name] == NONE, np.nan, known[name]) for name in names]
        single = [np.nan_to_num(each) for each in columns[2 * POINTS :]]
        none = np.zeros((2, len(snapshot.jobs)))
        return cls(np.column_stack(columns[:POINTS]), np.column_stack(columns[POINTS : 2 * POINTS]), *single, *none)

    def now(self, snapshot: Snapshot, gpus: Int64s) -> _ReportedLosses:
        """The same with the present reports of jobs. gpus: (N,) that each holds."""
        jobs = snapshot.jobs
        first, before, now = loss_columns(jobs).T
        progress = np.nan_to_num(hint_column(jobs, "progress"))
        done, loss = self.done, self.loss
        for at, new in ((np.zeros(len(jobs)), first), (progress, now)):
            other = ~np.isnan(new) & (np.isnan(loss[:, -1]) | ((new != loss[:, -1]) & (at > done[:, -1])))
            done, loss = _pushed(done, at, other), _pushed(loss, new, other)
        drops = loss[:, :-1] - loss[:, 1:]
        falls = np.fmax(np.nan_to_num(drops).max(axis=1, initial=0.0), self.largest)
        largest = np.select([falls > 0, before > now, first > 0], [falls, before - now, first], 1.0)
        ran_s = jobs.executed_s - self.last_s
        moved = (progress > self.last_done) & (ran_s > 0) & (gpus > 0)
        per_s = np.where(moved, (progress - self.last_done) / np.maximum(ran_s, 1e-9), 0.0)
        return _ReportedLosses(
            done, loss, largest, progress, jobs.executed_s.astype(np.float64), self.fall, per_s, gpus.astype(np.float64)
        )

    def carry(self, snapshot: Snapshot) -> dict[str, list[float]]:
        """What the next cycle needs."""
        named = {f"done_{at}": self.done[:, at] for at in range(POINTS)}
        named |= {f"loss_{at}": self.loss[:, at] for at in range(POINTS)}
        named |= dict(zip(_SINGLE, (self.largest, self.last_done, self.last_s, self.fall), strict=True))
        kept = {name: np.where(np.isnan(column), NONE, column) for name, column in named.items()}
        return dict(remembered(snapshot.jobs, kept))


_SINGLE = ("largest_fall", "last_done", "last_s", "fall")


def _pushed(table: Floats, column: Floats, which: Bools) -> Floats:
    """The table with one point more in these rows; the oldest goes. (N, POINTS)."""
    return np.where(which[:, None], np.column_stack([table[:, 1:], column]), table)


def _silent_note(silent: int, jobs: int) -> tuple[str, ...]:
    count = pluralize_of(silent, jobs, "job", "reports", "report")
    return (f"{count} no loss: counted as if it fell in equal parts",) if silent else ()
