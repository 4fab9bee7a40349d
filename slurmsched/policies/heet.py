"""Heet: how fast a job is on each GPU type is sampled while it runs; then jobs are matched with types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from slurmsched.estimators.alike import Alike
from slurmsched.estimators.completion import completed
from slurmsched.model import Card, Family, Input, Labels, Ranking, Snapshot, Use, Wants
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import hint_column
from slurmsched.policies.cards import PREEMPTS, ROUNDS
from slurmsched.policies.checks import check_choice, check_number
from slurmsched.policies.gpu_market import Market, market
from slurmsched.policies.order import arrival_s, ordered
from slurmsched.policies.samples import Samples, sampled
from slurmsched.policies.solve import Programme, solve

KEY = "heet"  # in a carry
GAP, NODES = 1e-3, 500


@dataclass(frozen=True, slots=True)
class Heet:
    """A job is tried on a few GPU types; what it was not tried on is filled in from the others, and a matching decides.

    probes: types that a job is to be tried on. round_s: [s]. most_jobs: jobs of one matching, those first that waited
    longest. fill: whether GPUs that come free within a round go to other jobs.
    Raises ConfigError for a parameter out of range.
    Source: Mo et al. (Heet), ASPLOS '24, for sampling, filling in and matching. Its elastic part is left out; what a
    job bids, its relative speed times its GPUs times rounds waited, and samples by the hint `progress` are ours.
    """

    preemptive: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.HETEROGENEITY,
        "Mo et al.: Heet, ASPLOS 2024",
        needs=(Input.PROGRESS,),
        uses=(Use.ORDER, Use.GPU_TYPE, Use.REQUEUE, Use.START),
        on_slurm=(
            PREEMPTS,
            ROUNDS,
            "Sizes stay: a job that Slurm runs keeps the GPUs that it asked for, so that the elastic part is left out.",
        ),
    )

    probes: int = 2
    round_s: float = 360.0
    most_jobs: int = 300
    fill: bool = True

    def __post_init__(self) -> None:
        check_number("probes", self.probes, least=1)
        check_number("round_s", self.round_s, above=0.0)
        check_number("most_jobs", self.most_jobs, least=1)
        check_choice("fill", self.fill, (True, False))

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, here = snapshot.jobs, market(snapshot, Alike())
        kept = _kept(snapshot)
        samples = sampled(snapshot, here.types)
        on, begun_s = samples.on, float(kept.get("begun_s", -math.inf))
        on[~here.active] = -1
        if snapshot.now_s >= begun_s + self.round_s - 1e-6 or not (on >= 0).any():
            begun_s, on = snapshot.now_s, self._matched(snapshot, here, samples)
        in_round = on >= 0
        waited = np.where(in_round, 0.0, samples.waited + (begun_s == snapshot.now_s))
        types = Labels.of([here.types[column] if column >= 0 else "" for column in on.tolist()])
        start_s = None if self.fill else np.where(in_round | ~here.active, -np.inf, np.inf)
        carry = {KEY: {"begun_s": begun_s}, **samples.carry(snapshot, here, on, waited)}
        missing = int((here.active & np.isnan(hint_column(jobs, "progress"))).sum())
        notes = (f"{missing} jobs without progress hints: as fast on every GPU type",) if missing else ()
        why = {"in_round": in_round.astype(np.int64), "types_tried": samples.tried, "rounds_waited": waited}
        return Ranking(ordered(jobs, ~in_round, -waited), why, carry, notes, Wants(gpu_type=types, start_s=start_s))

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The end of the round [Unix s], infinity without jobs."""
        return float(ranking.carry[KEY]["begun_s"]) + self.round_s if running.any() else math.inf

    def _matched(self, snapshot: Snapshot, here: Market, samples: Samples) -> Int64s:
        """Column of the type of each job in the round that begins, -1 for none. (N,) int64."""
        on = np.full(len(snapshot.jobs), -1, np.int64)
        order = ordered(snapshot.jobs, -samples.waited, arrival_s(snapshot.jobs))
        rows = order[here.active[order]][: self.most_jobs]
        if len(rows):
            speed = speeds(samples.rate[rows], here.speed[rows] > 0, self.probes)
            bids = speed * here.gpus[rows, None] * (1.0 + samples.waited[rows, None])
            on[rows] = matched(bids, here.gpus[rows], here.capacity)
        return on


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
    """Column of each job when the sum of bids is highest and no type gives more GPUs than it has, -1 for none. (N,)."""
    from scipy import sparse

    jobs, types = bids.shape
    cell = np.arange(jobs * types)
    by_type = sparse.csr_array((np.repeat(gpus, types), (np.tile(np.arange(types), jobs), cell)))
    by_job = sparse.csr_array((np.ones(len(cell)), (np.repeat(np.arange(jobs), types), cell)))
    high = (bids > 0).ravel().astype(np.float64)
    earlier = 1.0 + 1e-6 * np.arange(jobs, 0, -1)[:, None]  # of equal bids the one that comes first
    found = solve(
        Programme(-(bids * earlier).ravel(), np.zeros(len(cell)), high, sparse.vstack([by_type, by_job]).tocsc(),
                  np.append(capacity, np.ones(jobs)), whole=np.ones(len(cell), np.bool_)), gap=GAP, nodes=NODES,
    )  # fmt: skip
    if found.x is None:
        return np.full(jobs, -1, np.int64)
    share = found.x.reshape(jobs, types)
    return np.where(share.max(axis=1) > 0.5, share.argmax(axis=1), -1).astype(np.int64)


def _kept(snapshot: Snapshot) -> Mapping[str, Any]:
    found = snapshot.carry.get(KEY)
    return found if isinstance(found, Mapping) else {}
