"""Heet: how fast a job is on each GPU type is sampled while it runs; then jobs are matched with types and sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.estimators.alike import Alike
from slurmsched.estimators.completion import completed
from slurmsched.model import Card, Family, Input, Labels, Ranking, Snapshot, Use, Wants
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s
from slurmsched.model.hints import hint_column
from slurmsched.policies.cards import PREEMPTS, RESIZES, ROUNDS
from slurmsched.policies.checks import check_choice, check_count, check_number
from slurmsched.policies.gpu_market import Market, market
from slurmsched.policies.order import arrival_s, ordered
from slurmsched.policies.samples import Held, Samples, sampled
from slurmsched.policies.solve import Programme, solve
from slurmsched.policies.timetable import Sizes, sizes_of

KEY = "heet"  # in a carry
GAP, NODES = 1e-3, 500


@dataclass(frozen=True, slots=True)
class Heet:
    """A job is tried on a few GPU types; what it was not tried on is filled in from the others, and a matching decides.

    probes: types that a job is to be tried on. round_s: [s]. most_jobs: jobs of one matching, those first that waited
    longest. fill: whether GPUs that come free within a round go to other jobs. elastic: whether a job with hints
    min_gpus and max_gpus may have any doubling between. serial: part of its work that more GPUs do not speed up.
    Raises ConfigError for a parameter out of range.
    Source: Mo et al. (Heet), ASPLOS '24, for sampling, filling in, matching and sizes. Ours: a job has one GPU type at
    a time; it bids its relative speed times its GPUs times rounds waited; sizes by Amdahl's law; samples by the hint
    `progress`.
    """

    preemptive: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.HETEROGENEITY,
        "Mo et al.: Heet, ASPLOS 2024",
        left_out=(
            "One job on several GPU types at once: a gang has one.",
            "Trades between jobs after the matching: one programme finds the best sum at once.",
        ),
        needs=(Input.PROGRESS,),
        uses=(Use.ORDER, Use.GPU_TYPE, Use.SIZE, Use.REQUEUE, Use.START),
        on_slurm=(PREEMPTS, ROUNDS, RESIZES),
    )

    probes: int = 2
    round_s: float = 360.0
    most_jobs: int = 300
    fill: bool = True
    elastic: bool = True
    serial: float = 0.02

    def __post_init__(self) -> None:
        check_count("probes", self.probes, least=1)
        check_number("round_s", self.round_s, above=0.0)
        check_count("most_jobs", self.most_jobs, least=1)
        check_choice("fill", self.fill, (True, False))
        check_choice("elastic", self.elastic, (True, False))
        check_number("serial", self.serial)
        if self.serial > 1:
            raise ConfigError(f"must be a number of at most 1, got {self.serial!r}", key="policy.serial")

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, here = snapshot.jobs, market(snapshot, Alike())
        kept = _kept(snapshot)
        samples = sampled(snapshot, here.types, self.serial)
        held, begun_s = _still(samples, here.active), float(kept.get("begun_s", -math.inf))
        if snapshot.now_s >= begun_s + self.round_s - 1e-6 or not (held.on >= 0).any():
            begun_s, held = snapshot.now_s, self._matched(snapshot, here, samples)
        on, in_round = held.on, held.on >= 0
        waited = np.where(in_round, 0.0, samples.waited + (begun_s == snapshot.now_s))
        types = Labels.of([here.types[column] if column >= 0 else "" for column in on.tolist()])
        start_s = None if self.fill else np.where(in_round | ~here.active, -np.inf, np.inf)
        carry = {KEY: {"begun_s": begun_s}, **samples.carry(snapshot, here, replace(held, waited=waited))}
        missing = int((here.active & np.isnan(hint_column(jobs, "progress"))).sum())
        notes = (f"{missing} jobs without progress hints: as fast on every GPU type",) if missing else ()
        why = {"in_round": in_round.astype(np.int64), "types_tried": samples.tried, "rounds_waited": waited}
        wants = Wants(_sizes(held, jobs.gpus), types, start_s)
        return Ranking(ordered(jobs, ~in_round, -waited), why, carry, notes, wants)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The end of the round [Unix s], infinity without jobs."""
        return float(ranking.carry[KEY]["begun_s"]) + self.round_s if running.any() else math.inf

    def _matched(self, snapshot: Snapshot, here: Market, samples: Samples) -> Held:
        """What each job has in the round that begins."""
        held = _still(samples, np.zeros(len(snapshot.jobs), np.bool_))
        order = ordered(snapshot.jobs, -samples.waited, arrival_s(snapshot.jobs))
        rows = order[here.active[order]][: self.most_jobs]
        if len(rows):
            speed = speeds(samples.rate[rows], here.speed[rows] > 0, self.probes)
            gpus, pace = _options(self._sizes(snapshot, rows))
            worth = here.gpus[rows] * (1.0 + samples.waited[rows])
            bids = (speed[:, :, None] * (pace * worth[:, None])[:, None, :]).reshape(len(rows), -1)
            found = matched(bids, np.tile(gpus, speed.shape[1]), here.capacity)
            option = np.where(found >= 0, found % gpus.shape[1], 0)
            held.on[rows] = np.where(found >= 0, found // gpus.shape[1], -1)
            held.size[rows] = np.where(found >= 0, gpus[np.arange(len(rows)), option], 0.0)
            held.pace[rows] = np.where(found >= 0, pace[np.arange(len(rows)), option], 1.0)
        return held

    def _sizes(self, snapshot: Snapshot, rows: Int64s) -> list[Sizes]:
        """The sizes that each of these jobs may have."""
        if self.elastic:
            return sizes_of(snapshot, rows.tolist(), self.serial)
        return [Sizes(np.array([gpus]), np.ones(1)) for gpus in snapshot.jobs.gpus[rows].tolist()]


def _still(samples: Samples, active: Bools) -> Held:
    """What these jobs have from before, nothing for the others."""
    return Held(np.where(active, samples.on, -1), samples.waited, np.where(active, samples.size, 0.0),
                np.where(active, samples.pace, 1.0))  # fmt: skip


def _options(sizes: list[Sizes]) -> tuple[Floats, Floats]:
    """GPUs and speed of each job's sizes, of speed 0 where it has no more. (N, K), (N, K)."""
    most = max(len(each.gpus) for each in sizes)
    gpus, pace = np.ones((len(sizes), most)), np.zeros((len(sizes), most))
    for row, each in enumerate(sizes):
        gpus[row, : len(each.gpus)], pace[row, : len(each.gpus)] = each.gpus, each.speed
    return gpus, pace


def _sizes(held: Held, asked: Int32s) -> Int32s | None:
    """Sizes that differ from what is asked for, 0 elsewhere; None if none do. (N,)."""
    differs = (held.on >= 0) & (held.size > 0) & (held.size != asked)
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
    to_try = (known & may).sum(axis=1) < np.minimum(probes, may.sum(axis=1))
    filled = np.where(to_try[:, None] & ~known, 1.0, np.where(to_try[:, None], 0.5 * filled, filled))
    return np.where(may, np.maximum(filled, 1e-3), 0.0)


def matched(bids: Floats, gpus: Floats, capacity: Floats) -> Int64s:
    """Column of each job when the sum of bids is highest and no type gives more GPUs than it has, -1 for none. (N,).

    bids, gpus: (N, C), one column a type and size, the sizes of a type side by side; gpus may be (N,). capacity: (T,).
    """
    from scipy import sparse

    jobs, columns = bids.shape
    cell, need = np.arange(jobs * columns), np.broadcast_to(gpus.T, (columns, jobs)).T.ravel()
    type_of = np.arange(columns) // (columns // len(capacity))
    by_type = sparse.csr_array((need, (np.tile(type_of, jobs), cell)))
    by_job = sparse.csr_array((np.ones(len(cell)), (np.repeat(np.arange(jobs), columns), cell)))
    high = (bids > 0).ravel().astype(np.float64)
    earlier = 1.0 + 1e-6 * np.arange(jobs, 0, -1)[:, None]  # of equal bids the one that comes first
    found = solve(
        Programme(-(bids * earlier).ravel(), np.zeros(len(cell)), high, sparse.vstack([by_type, by_job]).tocsc(),
                  np.append(capacity, np.ones(jobs)), whole=np.ones(len(cell), np.bool_)), gap=GAP, nodes=NODES,
    )  # fmt: skip
    if found.x is None:
        return np.full(jobs, -1, np.int64)
    share = found.x.reshape(jobs, columns)
    return np.where(share.max(axis=1) > 0.5, share.argmax(axis=1), -1).astype(np.int64)


def _kept(snapshot: Snapshot) -> Mapping[str, Any]:
    found = snapshot.carry.get(KEY)
    return found if isinstance(found, Mapping) else {}
