"""Speeds measured while jobs run, and the GPUs that a job may choose in a round: Heet.

A sample is the progress of a job in the time that it ran on a GPU type, or on several types at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from slurmsched.allocation.elastic import JobSizes, amdahl
from slurmsched.allocation.heterogeneity import HeterogeneousCluster, gpu_type
from slurmsched.allocation.job_memory import recall
from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s
from slurmsched.model.hints import hint_column
from slurmsched.model.ordering import arrival_s
from slurmsched.resources.allocated import node_rows

_BY_JOB = ("waited", "done", "ran_s", "pace", "made several", "due several", "has others")
_BY_TYPE = ("made", "took", "gpus", "has")
NONE, SEVERAL = -1, -2  # for a column of types


@dataclass(frozen=True, slots=True, eq=False)
class RoundGpus:
    """What each job has in a round, by row of jobs.

    gpus: (N, T) GPUs of each type.
    waited: (N,) rounds since it ran.
    pace: (N,) speed at that size over that at the one it asks for.
    """

    gpus: Floats
    waited: Floats
    pace: Floats

    @property
    def size(self) -> Floats:
        """GPUs in all, 0 = it is not in the round. (N,)."""
        return np.asarray(self.gpus.sum(axis=1))

    @property
    def on(self) -> Int64s:
        """Column of its type, NONE where it is not in the round, SEVERAL where it has several. (N,) int64."""
        return type_of(self.gpus)


@dataclass(frozen=True, slots=True, eq=False)
class SpeedSamples(RoundGpus):
    """What was seen besides.

    made, ran_s: (N, T) progress on each type alone, 0 to 1, as at the size that a job asks for, and the time it took.
    several: (N, 2) progress on several types at once, and what it would have been by the sum of what its GPUs do each.
    has: (N, T + 1) GPUs of each type that it holds, the last of a type that is not known.
    """

    made: Floats
    ran_s: Floats
    several: Floats
    has: Floats

    @property
    def rate(self) -> Floats:
        """Progress per second, NaN where there was none. (N, T)."""
        seen = (self.ran_s > 0) & (self.made > 0)
        return np.divide(self.made, self.ran_s, out=np.full(self.made.shape, np.nan), where=seen)

    @property
    def tried(self) -> Int64s:
        """Types on which each was seen to make progress. (N,) int64."""
        return (~np.isnan(self.rate)).sum(axis=1).astype(np.int64)

    def efficiency(self, otherwise: float) -> Floats:
        """Speed on several types over the sum of what the GPUs do each, at most 1: the job's own, or that of all jobs
        that were seen so, or `otherwise`. (N,)."""
        made, due = self.several.sum(axis=0)
        of_all = made / due if due > 0 else otherwise
        seen = self.several[:, 1] > 0
        own = self.several[:, 0] / np.where(seen, self.several[:, 1], 1.0)
        return np.minimum(np.where(seen, own, of_all), 1.0)

    def carry(self, snapshot: Snapshot, cluster: HeterogeneousCluster, held: RoundGpus) -> dict[str, Any]:
        """The samples of active jobs, and of those that are delayed, as after a requeue; for `sampled` to take back."""
        jobs = snapshot.jobs
        rows = np.flatnonzero(cluster.active | (self.ran_s.any(axis=1) & ~jobs.finished))
        done = np.nan_to_num(hint_column(jobs, "progress"))
        columns = dict(zip(_BY_JOB, (held.waited, done, jobs.executed_s, held.pace, *self.several.T, self.has[:, -1]),
                           strict=True))  # fmt: skip
        for column, name in enumerate(cluster.types):
            tables = (self.made, self.ran_s, held.gpus, self.has)
            columns |= {f"{what} {name}": table[:, column] for what, table in zip(_BY_TYPE, tables, strict=True)}
        rows = rows[np.argsort(jobs.job_id[rows], kind="stable")]
        return {
            "job_id": jobs.job_id[rows].tolist(),
            "arrival_s": arrival_s(jobs)[rows].tolist(),
            **{name: np.asarray(values, np.float64)[rows].tolist() for name, values in columns.items()},
        }


def type_of(gpus: Floats) -> Int64s:
    """Column of the only type of which a job has GPUs; NONE without any, SEVERAL of more. gpus: (N, T). (N,) int64."""
    types = (gpus > 0).sum(axis=1)
    return np.where(types > 1, SEVERAL, np.where(types, gpus.argmax(axis=1), NONE)).astype(np.int64)


def take_samples(snapshot: Snapshot, types: tuple[str, ...], serial: float) -> SpeedSamples:
    """The samples as they stand: progress since the last look counts for the types and size that the job held.

    Where no allocation tells what it held, now or then, those that it was to have count; where that changed meanwhile,
    nothing does. On several types at once it counts beside what is known of each of them, if all of them are.
    serial: part of a job's work that more GPUs do not speed up.
    """
    jobs = snapshot.jobs
    by_type = [f"{what} {name}" for what in _BY_TYPE for name in types]
    carried = recall(jobs, snapshot.carry, (*_BY_JOB, *by_type))
    made, took_s, gpus, had = (
        np.nan_to_num(np.column_stack([carried[f"{what} {name}"] for name in types])) for what in _BY_TYPE
    )
    several = np.nan_to_num(np.column_stack([carried["made several"], carried["due several"]]))
    pace = np.where(np.isnan(carried["pace"]), 1.0, carried["pace"])
    has, had = _holds(snapshot, types), np.column_stack([had, np.nan_to_num(carried["has others"])])
    held, moved = _since(has, had)
    known, size = held.sum(axis=1) > 0, np.maximum(held.sum(axis=1), 1)
    on = np.where(known[:, None], held[:, :-1], gpus)
    by = np.where(known, amdahl(size, serial) / amdahl(np.maximum(jobs.gpus, 1), serial), pace)
    new = np.nan_to_num(hint_column(jobs, "progress")) - np.nan_to_num(carried["done"])
    ran_s = np.where(np.isnan(carried["ran_s"]), 0.0, jobs.executed_s - np.nan_to_num(carried["ran_s"]))
    counts = ~moved & (held[:, -1] == 0) & (new > 0) & (ran_s > 0)
    found = SpeedSamples(gpus, np.nan_to_num(carried["waited"]), pace, made, took_s, several, has)
    _count_several(found, on, new, ran_s * by, counts)
    column = type_of(on)
    rows = np.flatnonzero(counts & (column >= 0))
    made[rows, column[rows]] += new[rows] / by[rows]
    took_s[rows, column[rows]] += ran_s[rows]
    return found


def _count_several(samples: SpeedSamples, on: Floats, new: Floats, as_asked_s: Floats, counts: Bools) -> None:
    """Adds progress on several types, all of them known, and what it would have been by the sum. on: (N, T) GPUs.
    new: (N,) progress. as_asked_s: (N,) time that it took, as at the size asked for."""
    rate = np.where(on > 0, samples.rate, 0.0)
    due = (on * rate).sum(axis=1) / np.maximum(on.sum(axis=1), 1) * as_asked_s
    rows = np.flatnonzero(counts & (type_of(on) == SEVERAL) & np.isfinite(due))
    samples.several[rows] += np.column_stack([new, due])[rows]


def _since(has: Floats, had: Floats) -> tuple[Floats, Bools]:
    """What each job held since the last look, by what it holds now and held then: now's where it holds any. And whether
    that changed. (N, T + 1), (N,)."""
    holds, held_some = has.sum(axis=1) > 0, had.sum(axis=1) > 0
    return np.where(holds[:, None], has, had), holds & held_some & (has != had).any(axis=1)


def _holds(snapshot: Snapshot, types: tuple[str, ...]) -> Floats:
    """GPUs of each type that each job holds by the allocations, the last column of a type that is none of these.
    (N, T + 1)."""
    allocations, jobs = snapshot.allocations, snapshot.jobs
    found = np.zeros((len(jobs), len(types) + 1))
    row_of = {job: row for row, job in enumerate(jobs.job_id.tolist())}
    of_node = [gpu_type(text) for text in snapshot.nodes.gpu_types]
    for job, node, named, gpus in zip(allocations.job_id.tolist(), node_rows(snapshot).tolist(), allocations.gpu_type,
                                      allocations.gpus.tolist(), strict=True):  # fmt: skip
        name = named or (of_node[node] if node >= 0 else None)
        if (row := row_of.get(job, -1)) >= 0:
            found[row, types.index(name) if name in types else -1] += gpus
    return found


# Choices of a job in a round.

PARTS = (0.25, 0.5, 0.75)  # of a gang on the first of two types
MOST_PAIRS = 6  # of types; all of four


@dataclass(frozen=True, slots=True, eq=False)
class GpuChoices:
    """Choices of each job.

    gpus: (N, C, T) GPUs of each type.
    pace: (N, C) speed by the size over that at the size it asks for.
    speed: (N, C) by the types over that on the best one; 0 = it cannot have this.
    """

    gpus: Floats
    pace: Floats
    speed: Floats

    def with_more(self, other: GpuChoices) -> GpuChoices:
        """These choices, then the others."""
        pairs = ((self.gpus, other.gpus), (self.pace, other.pace), (self.speed, other.speed))
        return GpuChoices(*(np.concatenate(pair, axis=1) for pair in pairs))


def choices_of_one_type(speed: Floats, sizes: list[JobSizes]) -> GpuChoices:
    """Each size on each type, the sizes of a type side by side. speed: (N, T)."""
    gpus, pace = _options(sizes)
    jobs, types = speed.shape
    each = np.broadcast_to(gpus[:, None, :], (jobs, types, gpus.shape[1])).reshape(jobs, -1)
    column = np.repeat(np.arange(types), gpus.shape[1])
    made = np.zeros((jobs, each.shape[1], types))
    made[:, np.arange(each.shape[1]), column] = each
    return GpuChoices(made, np.tile(pace, types), speed[:, column] * (np.tile(pace, types) > 0))


def choices_of_two_types(
    speed: Floats, sizes: list[JobSizes], may: Bools, efficiency: Floats, nodes: Int32s
) -> GpuChoices:
    """Each size on two types at once, a quarter, a half or three quarters of it on the first; what nobody can have left
    out.

    Its speed is its efficiency times the sum of what its GPUs do each, of which each counts as if all were of its type.
    A gang that asks for several nodes has whole ones of each type. Of more than MOST_PAIRS pairs of types those count
    whose speeds, over all jobs, are nearest. speed: (N, T). may: (N, T), where each may be on it together with another
    type. efficiency, nodes: (N,).
    """
    gpus, pace = _options(sizes)
    by_type, rates = [np.zeros((0, *gpus.shape, speed.shape[1]))], [np.zeros((0, *gpus.shape))]
    for one, other in _pairs(speed):
        both = (may[:, one] & may[:, other])[:, None] & (gpus > 1) & (pace > 0)
        for part in PARTS:
            made = np.zeros((1, *gpus.shape, speed.shape[1]))
            made[0, :, :, one], made[0, :, :, other] = gpus * part, gpus * (1 - part)
            rate = efficiency * (part * speed[:, one] + (1 - part) * speed[:, other])
            by_type.append(made)
            whole = (gpus * part % 1 == 0) & ((nodes < 2) | (nodes * part % 1 == 0))[:, None]
            rates.append((rate[:, None] * (both & whole))[None])
    every, rate = np.moveaxis(np.concatenate(by_type), 1, 2), np.moveaxis(np.concatenate(rates), 1, 2)
    some = rate.any(axis=2)  # (B, K) parts and sizes that somebody can have
    paces = np.broadcast_to(pace.T, rate.shape)
    return GpuChoices(every[some].swapaxes(0, 1), paces[some].T, rate[some].T)


def _pairs(speed: Floats) -> list[tuple[int, int]]:
    """Columns of each two types of which GPUs may be held at once."""
    mean = np.log(np.maximum(speed, 1e-3)).mean(axis=0)
    pairs = list(combinations(range(speed.shape[1]), 2))
    return sorted(pairs, key=lambda pair: (abs(mean[pair[0]] - mean[pair[1]]), pair))[:MOST_PAIRS]


def _options(sizes: list[JobSizes]) -> tuple[Floats, Floats]:
    """GPUs and speed of each job's sizes, of speed 0 where it has no more. (N, K), (N, K)."""
    most = max(len(each.gpus) for each in sizes)
    gpus, pace = np.ones((len(sizes), most)), np.zeros((len(sizes), most))
    for row, each in enumerate(sizes):
        gpus[row, : len(each.gpus)], pace[row, : len(each.gpus)] = each.gpus, each.speed
    return gpus, pace
