"""Type and size of each job together, by goodput on each GPU type: Sia."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np

from slurmsched.allocation.elastic import amdahl, without_curve
from slurmsched.allocation.heterogeneity import GpuKinds
from slurmsched.allocation.job_memory import recall, remembered
from slurmsched.allocation.job_times import active
from slurmsched.allocation.size_rounds import SizeRound, elastic_jobs, gpus_now, size_ranking
from slurmsched.allocation.solver import UNMATCHED, matched
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import JobChanges, Labels, PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import hint_column
from slurmsched.model.ordering import arrival_s, ordered
from slurmsched.model.parameters import Count, Part, Period, Range, Seconds, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION, RESIZE_BY_REQUEUE, ROUNDS_ARE_LEASES
from slurmsched.protocols import CurveEstimator, SpeedEstimator, TypedCurveEstimator
from slurmsched.resources.allocated import AllocatedGpus

TYPES, ON = "sia_types", "on_type"  # in a carry
LEAST = 1e-6  # bid of what is worth no restart: better than idle GPUs


@dataclass(frozen=True, slots=True)
class Sia:
    """A GPU type and a number of GPUs for each job, all at once: the programme with the best sum of goodputs.

    A job has GPUs of one type. It may have its least size, what it holds, 1, 2, 4 and so on GPUs of a node, or whole
    nodes. These are between its hints min_gpus and max_gpus, and at most twice the most that it has had. Any other job
    has all its GPUs, and the programme chooses their type. Goodput counts over the least that the job may have. It
    counts less if the job must restart for it: the younger the job is and the more changes it had, the less.

    p: exponent of goodput. Below 0, and the lower the fairer; above 0 the sum counts more.
    wait_penalty: what a job without GPUs costs in the sum.
    restart_s: run time that a change of type or size costs, as the programme counts it [s].
    interval_s: time between two changes [s].
    most_jobs: most jobs of one programme, those that hold GPUs and then the earliest first.
    serial: share of a job's work that more GPUs do not speed up (Amdahl's law).
    speeds: a table of throughputs by type and number of GPUs replaces Amdahl's law; `profiles` has goodput.
    Raises ConfigError for a parameter out of range.
    Source: Jayaram Subramanya et al. (Sia), SOSP '23, and its release for the penalty and exponent. Ours: a bid is
    never below that of idle GPUs.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.ELASTIC,
        "Jayaram Subramanya et al.: Sia, SOSP 2023",
        packages=("scipy",),
        left_out=(
            "Throughput models that are fitted while a job runs: goodput is by `speeds`.",
            "Jobs of several GPU types at once, as by hybrid parallelism.",
            "The choice of nodes: the placement chooses them.",
        ),
        needs=(PolicyInput.SIZES, PolicyInput.SPEED, PolicyInput.PROGRESS),
        uses=(PolicyLever.ORDER, PolicyLever.GPU_TYPE, PolicyLever.SIZE, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(
            NEEDS_PREEMPTION,
            RESIZE_BY_REQUEUE,
            ROUNDS_ARE_LEASES,
            "The batch size is the job's own: slurmsched does not set it.",
        ),
        criteria={"given_gpus": "given {} GPUs"},
    )

    p: Annotated[float, Range(-10.0, 1.0)] = -0.5
    wait_penalty: Annotated[float, Range(1.0, 100.0)] = 1.1
    restart_s: Seconds = 30.0
    interval_s: Period = 60.0
    most_jobs: Count = 300
    serial: Part = 0.02
    speeds: SpeedEstimator = field(default_factory=EqualSpeeds)

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        who, before, kinds = active(snapshot), SizeRound.of(snapshot, "sia"), GpuKinds.of(snapshot)
        on, notes = _types_before(snapshot, kinds.types), without_curve(snapshot, who, self.speeds)
        if before.over(snapshot):
            chosen = self._chosen(snapshot, who, before, kinds)
            given, on_then = _as_before(snapshot, before, on, kinds) if chosen is None else chosen
            notes += (UNMATCHED,) if chosen is None else ()
            before = before.begun(snapshot, given, self.interval_s, moved=(on_then != on) & (on >= 0))
            on = on_then
        order = ordered(snapshot.jobs, before.given == 0, -before.given)
        ranking = size_ranking(snapshot, order, before, notes)
        carry = {**ranking.carry, **dict(remembered(snapshot.jobs, {ON: on.astype(np.float64)}))}
        on = np.where(before.given > 0, on, -1)
        return replace(
            ranking, carry={**carry, TYPES: list(kinds.types)}, changes=_changes(ranking.changes, on, kinds.types)
        )

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When types and sizes may change next [Unix s]; infinity if there are no jobs."""
        return SizeRound.next_s(snapshot, ranking, "sia")

    def _chosen(
        self, snapshot: Snapshot, who: Bools, before: SizeRound, kinds: GpuKinds
    ) -> tuple[Int64s, Int64s] | None:
        """GPUs of each job from now on, and the column of their type, -1 for none. (N,), (N,).

        None if the solver finds nothing.
        """
        jobs, now = snapshot.jobs, gpus_now(snapshot)
        rows = ordered(jobs, now == 0)
        column, (stays, taken) = _held_columns(snapshot, kinds), _staying(snapshot, kinds)
        rows = rows[(who & ~stays)[rows]][: self.most_jobs]
        given, on = np.where(stays, now, 0), np.where(stays, column, -1)
        options = self._options(snapshot, rows, before, kinds)
        width = max((len(each.gpus) for each in options), default=0)
        if not width:
            return given, on
        carried = self._kept(snapshot, before)
        bids, gpus = np.zeros((len(rows), width)), np.zeros((len(rows), width, len(kinds.types)))
        for place, (row, each) in enumerate(zip(rows.tolist(), options, strict=True)):
            same = (each.gpus == now[row]) & (each.column == column[row])
            bids[place, : len(each.gpus)] = self._bids(each.worth * np.where(same, 1.0, carried[row]))
            gpus[place, np.arange(len(each.gpus)), each.column] = each.gpus
        found = matched(bids, gpus, kinds.capacity - taken)
        if found is None:
            return None
        for place in np.flatnonzero(found >= 0).tolist():
            given[rows[place]] = options[place].gpus[found[place]]
            on[rows[place]] = options[place].column[found[place]]
        return given, on

    def _bids(self, worth: Floats) -> Floats:
        """The gain of each choice over no GPUs, for the best sum of goodput to the power of p. (K,)."""
        powers = np.maximum(worth, 1e-9) ** self.p
        return np.maximum(self.wait_penalty - powers if self.p < 0 else self.wait_penalty + powers, LEAST)

    def _kept(self, snapshot: Snapshot, before: SizeRound) -> Floats:
        """The share of each job's goodput that remains if it restarts. (N,)."""
        age_s = snapshot.now_s - arrival_s(snapshot.jobs)
        kept = np.maximum(age_s - before.changes * self.restart_s, 0.0) / (age_s + max(self.restart_s, 1e-9))
        return np.where(before.most > 0, kept, 1.0)  # a first start is no change

    def _options(self, snapshot: Snapshot, rows: Int64s, before: SizeRound, kinds: GpuKinds) -> list[_TypedSizes]:
        """The choices of each of these jobs."""
        low, high, elastic = (
            *(hint_column(snapshot.jobs, f"{end}_gpus") for end in ("min", "max")),
            elastic_jobs(snapshot),
        )
        speed, known, now = self.speeds.speeds(snapshot, kinds.types), kinds.sizes, gpus_now(snapshot)
        made = []
        for row in rows.tolist():
            asked = int(snapshot.jobs.gpus[row])
            least, most = (int(low[row]), int(high[row])) if elastic[row] else (asked, asked)
            held = int(now[row])
            most = min(most, max(2 * max(int(before.most[row]), held), least))
            columns, gpus, goodput = [], [], []
            for column in np.flatnonzero(speed[row] > 0).tolist():
                fits = (known[column] >= least) & (known[column] <= most)
                sizes = np.union1d(known[column][fits], [least, *([held] if least <= held <= most else [])])
                sizes = sizes[sizes <= kinds.room[row, column]]
                columns.append(np.full(len(sizes), column, np.int64))
                gpus.append(sizes)
                here = float(speed[row, column])
                goodput.append(self._goodput(snapshot, row, kinds, column, sizes, here) if len(sizes) else np.zeros(0))
            made.append(_TypedSizes.of(columns, gpus, goodput, least))
        return made

    def _goodput(
        self, snapshot: Snapshot, row: int, kinds: GpuKinds, column: int, gpus: Int64s, speed: float
    ) -> Floats:
        """Of a job on that many GPUs of a type, over that on as many of the reference type as it asks for. (K,).

        speed: on the type at the size that it asks for.
        """
        type_, asked = kinds.types[column], snapshot.jobs.gpus[row : row + 1].astype(np.int64)
        if isinstance(self.speeds, TypedCurveEstimator):
            found = self.speeds.curve_on(snapshot, row, type_, gpus, gpus > kinds.of_node[column])
            if found is not None:
                return found
        curve = self.speeds.curve(snapshot, row, gpus) if isinstance(self.speeds, CurveEstimator) else None
        pace = amdahl(gpus, self.serial) / amdahl(asked, self.serial) if curve is None else curve
        return np.asarray(pace * speed)


@dataclass(frozen=True, slots=True, eq=False)
class _TypedSizes:
    """What a job may have.

    column: (K,) of the type.
    gpus: (K,).
    worth: (K,) goodput over the least there is, times the least GPUs that it may have.
    """

    column: Int64s
    gpus: Int64s
    worth: Floats

    @classmethod
    def of(cls, column: list[Int64s], gpus: list[Int64s], goodput: list[Floats], least: int) -> _TypedSizes:
        """Of all types, without what it cannot run on."""
        if not column:
            return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
        rate = np.concatenate(goodput)
        runs = rate > 0
        worth = rate[runs] / rate[runs].min(initial=np.inf) * least
        return cls(np.concatenate(column)[runs], np.concatenate(gpus)[runs], worth)


def _held_columns(snapshot: Snapshot, kinds: GpuKinds) -> Int64s:
    """Column of the type that each job holds, -1 for none and for several. (N,)."""
    allocated = AllocatedGpus.of(snapshot)
    some = np.flatnonzero(allocated.count)
    on = np.full(len(allocated.count), -1, np.int64)
    if len(some):
        column = kinds.column[allocated.node]
        low, high = (each.reduceat(column, allocated.first[some]) for each in (np.minimum, np.maximum))
        on[some] = np.where(low == high, low, -1)
    return on


def _staying(snapshot: Snapshot, kinds: GpuKinds) -> tuple[Bools, Floats]:
    """Jobs that hold GPUs on a node that takes no jobs, such as a draining one (N,).

    And the GPUs of each type that these jobs hold on other nodes (T,).
    """
    allocated = AllocatedGpus.of(snapshot)
    job, closed = np.repeat(np.arange(len(allocated.count)), allocated.count), snapshot.nodes.closed[allocated.node]
    stays = np.bincount(job, closed, len(allocated.count)) > 0
    elsewhere = np.where(stays[job] & ~closed, allocated.gpus, 0).astype(np.float64)
    return stays, np.bincount(kinds.column[allocated.node], elsewhere, len(kinds.types)).astype(np.float64)


def _as_before(snapshot: Snapshot, before: SizeRound, on: Int64s, kinds: GpuKinds) -> tuple[Int64s, Int64s]:
    """GPUs and type of each job as in the round before, or what it holds if it had none. (N,), (N,)."""
    given = np.where(before.given > 0, before.given, gpus_now(snapshot))
    return given, np.where(before.given > 0, on, _held_columns(snapshot, kinds))


def _types_before(snapshot: Snapshot, types: tuple[str, ...]) -> Int64s:
    """Column of the type that each job has in this round, -1 for none. (N,)."""
    if snapshot.carry.get(TYPES) != list(types):
        return np.full(len(snapshot.jobs), -1, np.int64)
    return np.nan_to_num(recall(snapshot.jobs, snapshot.carry, (ON,))[ON], nan=-1.0).astype(np.int64)


def _changes(sizes: JobChanges | None, on: Int64s, types: tuple[str, ...]) -> JobChanges:
    """Sizes, and the type of each job that has one. on: (N,)."""
    return replace(
        sizes or JobChanges(), gpu_type=Labels.of([types[column] if column >= 0 else "" for column in on.tolist()])
    )
