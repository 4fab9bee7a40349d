"""Heet: how fast a job is on each GPU type is sampled while it runs; then jobs are matched with types and sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from slurmsched.estimators.alike import Alike
from slurmsched.estimators.completion import completed
from slurmsched.model import Card, Family, Input, Labels, Ranking, Snapshot, Use, Wants
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s
from slurmsched.model.hints import hint_column
from slurmsched.model.wants import request_of
from slurmsched.policies.bundles import Bundles, on_one, on_two
from slurmsched.policies.cards import MIXED_GANGS, PREEMPTS, RESIZES, ROUNDS
from slurmsched.policies.checks import check_choice
from slurmsched.policies.gpu_market import Market, market
from slurmsched.policies.order import arrival_s, ordered
from slurmsched.policies.ranges import Count, Part, Period, Range, check_ranges
from slurmsched.policies.samples import SEVERAL, Held, Samples, sampled
from slurmsched.policies.solve import Programme, solve
from slurmsched.policies.timetable import Sizes, sizes_of
from slurmsched.words import some

KEY = "heet"  # in a carry
GAP, NODES = 1e-3, 500


@dataclass(frozen=True, slots=True)
class Heet:
    """A job is tried on a few GPU types; what it was not tried on is filled in from the others, and a matching decides.

    probes: types that a job is to be tried on. round_s: [s]. most_jobs: jobs of one matching, those first that waited
    longest. fill: whether GPUs that come free within a round go to other jobs. elastic: whether a job with hints
    min_gpus and max_gpus may have any doubling between. serial: part of its work that more GPUs do not speed up.
    mixed: whether a job with the hint `mixed=yes` that was tried on enough types may have GPUs of two at once, a
    quarter, a half or three quarters of them of the first. mixed_efficiency: speed then over the sum of what its GPUs
    do each, until progress tells it.
    Raises ConfigError for a parameter out of range.
    Source: Mo et al. (Heet), ASPLOS '24, for sampling, filling in, matching, sizes and jobs on several types. Ours: a
    job bids its relative speed times its GPUs times rounds waited; sizes by Amdahl's law; samples by the hint
    `progress`; which parts of a gang may be on which type; that speeds add up but for one efficiency.
    """

    preemptive: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.HETEROGENEITY,
        "Mo et al.: Heet, ASPLOS 2024",
        left_out=(
            "Trades between jobs after the matching: one programme finds the best sum at once.",
            "Filling in speeds over numbers of GPUs: sizes follow Amdahl's law.",
        ),
        needs=(Input.PROGRESS,),
        uses=(Use.ORDER, Use.GPU_TYPE, Use.SIZE, Use.REQUEUE, Use.START),
        on_slurm=(PREEMPTS, ROUNDS, RESIZES, MIXED_GANGS),
    )

    probes: Count = 2
    round_s: Period = 360.0
    most_jobs: Count = 300
    fill: bool = True
    elastic: bool = True
    serial: Part = 0.02
    mixed: bool = False
    mixed_efficiency: Annotated[float, Range(1e-6, 1.0)] = 0.9

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choice("fill", self.fill, (True, False))
        check_choice("elastic", self.elastic, (True, False))
        check_choice("mixed", self.mixed, (True, False))

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, here = snapshot.jobs, market(snapshot, Alike())
        kept = _kept(snapshot)
        samples = sampled(snapshot, here.types, self.serial)
        held, begun_s = _still(samples, here.active), float(kept.get("begun_s", -math.inf))
        if snapshot.now_s >= begun_s + self.round_s - 1e-6 or not held.size.any():
            begun_s, held = snapshot.now_s, self._matched(snapshot, here, samples)
        in_round = held.size > 0
        waited = np.where(in_round, 0.0, samples.waited + here.active * (begun_s == snapshot.now_s))
        start_s = None if self.fill else np.where(in_round | ~here.active, -np.inf, np.inf)
        carry = {KEY: {"begun_s": begun_s}, **samples.carry(snapshot, here, replace(held, waited=waited))}
        missing = int((here.active & np.isnan(hint_column(jobs, "progress"))).sum())
        notes = (f"{some(missing, 'job')} without progress hints: as fast on every GPU type",) if missing else ()
        why = {"in_round": in_round.astype(np.int64), "types_tried": samples.tried, "rounds_waited": waited}
        return Ranking(ordered(jobs, ~in_round, -waited), why, carry, notes, _wants(held, here, jobs.gpus, start_s))

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The end of the round [Unix s], infinity without jobs."""
        return float(ranking.carry[KEY]["begun_s"]) + self.round_s if running.any() else math.inf

    def _matched(self, snapshot: Snapshot, here: Market, samples: Samples) -> Held:
        """What each job has in the round that begins."""
        held = _still(samples, np.zeros(len(snapshot.jobs), np.bool_))
        order = ordered(snapshot.jobs, -samples.waited, arrival_s(snapshot.jobs))
        rows = order[here.active[order]][: self.most_jobs]
        if len(rows):
            choices = self._choices(snapshot, here, samples, rows)
            worth = here.gpus[rows] * (1.0 + samples.waited[rows])
            found = matched(choices.speed * (choices.pace * worth[:, None]), choices.gpus, here.capacity)
            got = np.flatnonzero(found >= 0)
            held.gpus[rows[got]] = choices.gpus[got, found[got]]
            held.pace[rows[got]] = choices.pace[got, found[got]]
        return held

    def _choices(self, snapshot: Snapshot, here: Market, samples: Samples, rows: Int64s) -> Bundles:
        """What each of these jobs may have."""
        may, rate, sizes = here.speed[rows] > 0, samples.rate[rows], self._sizes(snapshot, rows)
        speed = speeds(rate, may, self.probes)
        one = on_one(speed, sizes)
        if not self.mixed:
            return one
        jobs, told = snapshot.jobs, np.array([name != "" for name in here.types], np.bool_)
        can = (hint_column(jobs, "mixed") == 1) & _over_nodes(snapshot)
        ready = can[rows] & ~_to_try(rate, may, self.probes)
        efficiency = samples.efficiency(self.mixed_efficiency)[rows]
        return one.with_more(on_two(speed, sizes, may & told & ready[:, None], efficiency, jobs.nodes[rows]))

    def _sizes(self, snapshot: Snapshot, rows: Int64s) -> list[Sizes]:
        """The sizes that each of these jobs may have."""
        if self.elastic:
            return sizes_of(snapshot, rows.tolist(), self.serial)
        return [Sizes(np.array([gpus]), np.ones(1)) for gpus in snapshot.jobs.gpus[rows].tolist()]


def _over_nodes(snapshot: Snapshot) -> Bools:
    """Jobs whose GPUs are of several nodes, as many of each: Slurm gives a job of one node one type. (N,)."""
    jobs, largest = snapshot.jobs, int(snapshot.nodes.gpus.max(initial=0))
    return ((jobs.nodes > 1) | (jobs.gpus > largest)) & (jobs.gpus % np.maximum(jobs.nodes, 1) == 0)


def _still(samples: Samples, active: Bools) -> Held:
    """What these jobs have from before, nothing for the others."""
    return Held(np.where(active[:, None], samples.gpus, 0.0), samples.waited, np.where(active, samples.pace, 1.0))


def _wants(held: Held, here: Market, asked: Int32s, start_s: Floats | None) -> Wants:
    """Types and sizes of the jobs of the round. asked: (N,) GPUs."""
    most, several = held.gpus.argmax(axis=1), held.on == SEVERAL
    types = [here.types[column] if gpus else "" for column, gpus in zip(most.tolist(), held.size.tolist(), strict=True)]
    mixed = [
        request_of({name: int(gpus) for name, gpus in zip(here.types, row, strict=True) if gpus}) if two else ""
        for row, two in zip(held.gpus.tolist(), several.tolist(), strict=True)
    ]
    by_type = Labels.of(mixed) if several.any() else None
    return Wants(_sizes(held, asked), Labels.of(types), start_s, gpus_by_type=by_type)


def _sizes(held: Held, asked: Int32s) -> Int32s | None:
    """Sizes that differ from what is asked for, 0 elsewhere; None if none do. (N,)."""
    differs = (held.size > 0) & (held.size != asked)
    return np.where(differs, held.size, 0).astype(np.int32) if differs.any() else None


def speeds(rate: Floats, may: Bools, probes: int) -> Floats:
    """Speed of each job on each type over that on its best one; 0 where it may not run. (N, T).

    rate: (N, T) measured, NaN where it was not. Gaps are filled in from the other jobs; while a job was tried on fewer
    types than `probes` and may be on more, those that it was not tried on count as if it were fastest there.
    """
    known = ~np.isnan(rate)
    filled, some = np.ones(rate.shape), known.any(axis=1)
    if some.any():
        filled[some] = completed(rate[some])
        filled[some] /= filled[some].max(axis=1, keepdims=True)
    to_try = _to_try(rate, may, probes)
    filled = np.where(to_try[:, None] & ~known, 1.0, np.where(to_try[:, None], 0.5 * filled, filled))
    return np.where(may, np.maximum(filled, 1e-3), 0.0)


def _to_try(rate: Floats, may: Bools, probes: int) -> Bools:
    """Jobs that were tried on fewer types than `probes` and may be on more. (N,). rate, may: see speeds."""
    tried = (~np.isnan(rate) & may).sum(axis=1)
    return np.asarray(tried < np.minimum(probes, may.sum(axis=1)))


def matched(bids: Floats, gpus: Floats, capacity: Floats) -> Int64s:
    """Choice of each job when the sum of bids is highest and no type gives more GPUs than it has, -1 for none. (N,).

    bids: (N, C), 0 = it cannot have this. gpus: (N, C, T) of each type. capacity: (T,).
    """
    from scipy import sparse

    job, choice = np.nonzero(bids > 0)
    cell, need = np.arange(len(job)), gpus[job, choice]
    if not len(job):
        return np.full(len(bids), -1, np.int64)
    by_type = sparse.csc_array(need.T)
    by_job = sparse.csr_array((np.ones(len(cell)), (job, cell)), shape=(len(bids), len(cell)))
    earlier = 1.0 + 1e-6 * (len(bids) - job)  # of equal bids the one that comes first
    found = solve(
        Programme(-bids[job, choice] * earlier, np.zeros(len(cell)), np.ones(len(cell)),
                  sparse.vstack([by_type, by_job]).tocsc(), np.append(capacity, np.ones(len(bids))),
                  whole=np.ones(len(cell), np.bool_)), gap=GAP, nodes=NODES,
    )  # fmt: skip
    chosen = np.full(len(bids), -1, np.int64)
    if found.x is not None:
        taken = found.x > 0.5
        chosen[job[taken]] = choice[taken]
    return chosen


def _kept(snapshot: Snapshot) -> Mapping[str, Any]:
    found = snapshot.carry.get(KEY)
    return found if isinstance(found, Mapping) else {}
