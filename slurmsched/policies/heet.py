"""Heet: how fast a job is on each GPU type is sampled while it runs; then jobs are matched with types and sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from slurmsched.allocation.elastic import JobSizes, sizes_of
from slurmsched.allocation.heterogeneity import HeterogeneousCluster, heterogeneous_cluster
from slurmsched.allocation.rounds import round_end_s
from slurmsched.allocation.solver import UNMATCHED, matched
from slurmsched.allocation.speed_samples import (
    SEVERAL,
    GpuChoices,
    RoundGpus,
    SpeedSamples,
    choices_of_one_type,
    choices_of_two_types,
    take_samples,
)
from slurmsched.estimators.throughput_table import complete_rates
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import JobChanges, Labels, PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s
from slurmsched.model.hints import hint_column
from slurmsched.model.ordering import arrival_s, ordered
from slurmsched.model.overrides import request_of_types
from slurmsched.model.parameters import Count, Part, Period, Range, check_choice, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION, RESIZE_BY_REQUEUE, ROUNDS_ARE_LEASES, SEVERAL_GPU_TYPES
from slurmsched.plain_text import pluralize

KEY = "heet"  # in a carry


@dataclass(frozen=True, slots=True)
class Heet:
    """Tries jobs on a few GPU types, fills in missing speeds, and matches jobs with types and sizes.

    probes: types on which a job is tried before the matching alone decides.
    round_s: length of a round [s].
    most_jobs: most jobs of one matching, the longest waiting first.
    fill: other jobs get GPUs that become free within a round.
    elastic: a job with hints min_gpus and max_gpus may have any doubling between them.
    serial: share of a job's work that more GPUs do not speed up (Amdahl's law).
    mixed: a job with the hint `mixed=yes` that was tried on enough types may have GPUs of two types at once: a quarter,
        a half or three quarters of them of the first.
    mixed_efficiency: speed on two types over the sum of the speeds of their GPUs, until progress measures it.
    Raises ConfigError for a parameter out of range.
    Source: Mo et al. (Heet), ASPLOS '24, for sampling, filling in, matching, sizes and jobs on several types. Ours: a
    job bids its relative speed times its GPUs times rounds waited; sizes by Amdahl's law; samples by the hint
    `progress`; which parts of a gang may be on which type; that speeds add up except for one efficiency.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.HETEROGENEITY,
        "Mo et al.: Heet, ASPLOS 2024",
        packages=("scipy",),
        left_out=(
            "Trades between jobs after the matching: one programme finds the best sum at once.",
            "Filling in speeds over numbers of GPUs: sizes follow Amdahl's law.",
        ),
        needs=(PolicyInput.PROGRESS,),
        uses=(PolicyLever.ORDER, PolicyLever.GPU_TYPE, PolicyLever.SIZE, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(NEEDS_PREEMPTION, ROUNDS_ARE_LEASES, RESIZE_BY_REQUEUE, SEVERAL_GPU_TYPES),
        criteria={"in_round": "in this round"},
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
        jobs, cluster = snapshot.jobs, heterogeneous_cluster(snapshot, EqualSpeeds())
        carried = _kept(snapshot)
        samples = take_samples(snapshot, cluster.types, self.serial)
        held, begun_s = _still(samples, cluster.active), float(carried.get("begun_s", -math.inf))
        notes: tuple[str, ...] = ()
        if snapshot.now_s >= begun_s + self.round_s - 1e-6 or not held.size.any():
            begun_s, found = snapshot.now_s, self._matched(snapshot, cluster, samples)
            held, notes = (held, (UNMATCHED,)) if found is None else (found, ())
        in_round = held.size > 0
        waited = np.where(in_round, 0.0, samples.waited + cluster.active * (begun_s == snapshot.now_s))
        start_s = None if self.fill else np.where(in_round | ~cluster.active, -np.inf, np.inf)
        carry = {KEY: {"begun_s": begun_s}, **samples.carry(snapshot, cluster, replace(held, waited=waited))}
        missing = int((cluster.active & np.isnan(hint_column(jobs, "progress"))).sum())
        if missing:
            notes += (f"{pluralize(missing, 'job')} without progress hints: as fast on every GPU type",)
        why = {"in_round": in_round.astype(np.int64), "types_tried": samples.tried, "rounds_waited": waited}
        return Ranking(
            ordered(jobs, ~in_round, -waited), why, carry, notes, _changes(held, cluster, jobs.gpus, start_s)
        )

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The end of the round [Unix s], infinity without jobs."""
        return round_end_s(ranking, running, self.round_s, KEY)

    def _matched(self, snapshot: Snapshot, cluster: HeterogeneousCluster, samples: SpeedSamples) -> RoundGpus | None:
        """Type and size of each job in the round that begins, None if the solver finds none."""
        held = _still(samples, np.zeros(len(snapshot.jobs), np.bool_))
        order = ordered(snapshot.jobs, -samples.waited, arrival_s(snapshot.jobs))
        rows = order[cluster.active[order]][: self.most_jobs]
        if len(rows):
            choices = self._choices(snapshot, cluster, samples, rows)
            worth = cluster.gpus[rows] * (1.0 + samples.waited[rows])
            found = matched(choices.speed * (choices.pace * worth[:, None]), choices.gpus, cluster.capacity)
            if found is None:
                return None
            got = np.flatnonzero(found >= 0)
            held.gpus[rows[got]] = choices.gpus[got, found[got]]
            held.pace[rows[got]] = choices.pace[got, found[got]]
        return held

    def _choices(
        self, snapshot: Snapshot, cluster: HeterogeneousCluster, samples: SpeedSamples, rows: Int64s
    ) -> GpuChoices:
        """The choices of each of these jobs."""
        may, rate, sizes = cluster.speed[rows] > 0, samples.rate[rows], self._sizes(snapshot, rows)
        speed = speeds(rate, may, self.probes)
        one = choices_of_one_type(speed, sizes)
        if not self.mixed:
            return one
        jobs, typed = snapshot.jobs, np.array([name != "" for name in cluster.types], np.bool_)
        can = (hint_column(jobs, "mixed") == 1) & _over_nodes(snapshot)
        ready = can[rows] & ~_to_try(rate, may, self.probes)
        efficiency = samples.efficiency(self.mixed_efficiency)[rows]
        return one.with_more(
            choices_of_two_types(speed, sizes, may & typed & ready[:, None], efficiency, jobs.nodes[rows])
        )

    def _sizes(self, snapshot: Snapshot, rows: Int64s) -> list[JobSizes]:
        """The sizes that each of these jobs may have."""
        if self.elastic:
            return sizes_of(snapshot, rows.tolist(), self.serial)
        return [JobSizes(np.array([gpus]), np.ones(1)) for gpus in snapshot.jobs.gpus[rows].tolist()]


def _over_nodes(snapshot: Snapshot) -> Bools:
    """Jobs whose GPUs are of several nodes, as many of each: Slurm gives a job of one node one type. (N,)."""
    jobs, largest = snapshot.jobs, int(snapshot.nodes.gpus.max(initial=0))
    return ((jobs.nodes > 1) | (jobs.gpus > largest)) & (jobs.gpus % np.maximum(jobs.nodes, 1) == 0)


def _still(samples: SpeedSamples, active: Bools) -> RoundGpus:
    """The types and sizes that these jobs had before, none for the others."""
    return RoundGpus(np.where(active[:, None], samples.gpus, 0.0), samples.waited, np.where(active, samples.pace, 1.0))


def _changes(held: RoundGpus, cluster: HeterogeneousCluster, asked: Int32s, start_s: Floats | None) -> JobChanges:
    """Types and sizes of the jobs of the round. asked: (N,) GPUs."""
    most, several = held.gpus.argmax(axis=1), held.on == SEVERAL
    types = [
        cluster.types[column] if gpus else "" for column, gpus in zip(most.tolist(), held.size.tolist(), strict=True)
    ]
    mixed = [
        request_of_types({name: int(gpus) for name, gpus in zip(cluster.types, row, strict=True) if gpus})
        if two
        else ""
        for row, two in zip(held.gpus.tolist(), several.tolist(), strict=True)
    ]
    by_type = Labels.of(mixed) if several.any() else None
    return JobChanges(_sizes(held, asked), Labels.of(types), start_s, gpus_by_type=by_type)


def _sizes(held: RoundGpus, asked: Int32s) -> Int32s | None:
    """Sizes that differ from what is asked for, 0 elsewhere; None if none do. (N,)."""
    differs = (held.size > 0) & (held.size != asked)
    return np.where(differs, held.size, 0).astype(np.int32) if differs.any() else None


def speeds(rate: Floats, may: Bools, probes: int) -> Floats:
    """Speed of each job on each type over that on its best one; 0 where it may not run. (N, T).

    rate: (N, T) measured, NaN where it was not. Gaps are filled in from the other jobs.
    probes: types on which each job is to be tried. A job that was tried on fewer, and may be on more, counts as fastest
        on the others.
    """
    known = ~np.isnan(rate)
    filled, some = np.ones(rate.shape), known.any(axis=1)
    if some.any():
        filled[some] = complete_rates(rate[some])
        filled[some] /= filled[some].max(axis=1, keepdims=True)
    to_try = _to_try(rate, may, probes)
    filled = np.where(to_try[:, None] & ~known, 1.0, np.where(to_try[:, None], 0.5 * filled, filled))
    return np.where(may, np.maximum(filled, 1e-3), 0.0)


def _to_try(rate: Floats, may: Bools, probes: int) -> Bools:
    """Jobs that were tried on fewer types than `probes` and may be on more. (N,). rate, may: see speeds."""
    tried = (~np.isnan(rate) & may).sum(axis=1)
    return np.asarray(tried < np.minimum(probes, may.sum(axis=1)))


def _kept(snapshot: Snapshot) -> Mapping[str, Any]:
    found = snapshot.carry.get(KEY)
    return found if isinstance(found, Mapping) else {}
