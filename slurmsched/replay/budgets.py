"""Limits on what was used: GrpTRESMins and GrpWall, used up as jobs run; GrpTRESRunMins, given back as they run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.replay.associations import ROOT
from slurmsched.replay.fair_share import decay_per_s
from slurmsched.replay.layout import Layout
from slurmsched.replay.limits import NONE, LimitTable
from slurmsched.replay.requests import Requests
from slurmsched.replay.slurm_model import SlurmModel
from slurmsched.replay.traces import Trace

LEAST = 1e-6  # what a job must find of a limit that only holds back once it is used up
KINDS = ("group gpu_s", "group wall_s", "group run_gpu_s")
GPU_S, WALL_S, RUN_GPU_S = range(3)


def amounts(trace: Trace, safe: bool) -> dict[str, Floats]:
    """What each job uses of each kind of limits.RUNNING. (J,).

    safe: AccountingStorageEnforce=safe, a job must find what it may use in its time limit; one whose limit is not known
    is held against none.
    """
    ones, gpus = np.ones(len(trace)), trace.gpus.astype(np.float64)
    limit_s = np.where(_bounded(trace), trace.time_limit_s, 0.0)
    return {"jobs": ones, "gpus": gpus, "wall_s": np.maximum(limit_s * safe, LEAST),
            "gpu_s": np.maximum(gpus * limit_s * safe, LEAST), "run_gpu_s": gpus * limit_s}  # fmt: skip


def _bounded(trace: Trace) -> Bools:
    """Which jobs have a time limit that is known. (J,)."""
    bounded: Bools = trace.limit_known & np.isfinite(trace.time_limit_s)
    return bounded


def whole_minutes(used: Any) -> Any:
    """Seconds, or GPU seconds, of the whole minutes in which slurmctld compares them. A number or an array."""
    return np.floor(used / 60.0 + 1e-9) * 60.0


class Budgets:
    """What was used under each limit of these kinds, counted every calc_period_s and at the end of each run.

    used: (L,) of each limit of the table, faded as usage is [GPU s, or s]; 0 of other kinds. What is left stands
    in the table, and what running jobs may still use is taken from it beforehand: of GrpTRESMins if safe, of
    GrpTRESRunMins always.
    Source: Slurm's priority/multifactor (usage) and acct_policy.c.
    """

    def __init__(self, limits: LimitTable, trace: Trace, layout: Layout, requests: Requests, model: SlurmModel) -> None:
        self.limits, self.model = limits, model
        self._kind = [KINDS.index(key[1]) if key[1] in KINDS else NONE for key in limits.keys]
        self.counts = any(kind != NONE for kind in self._kind)
        self.used = np.zeros(len(limits.keys))
        factor = {each.name: each.usage_factor for each in layout.qos}
        keeps = {each.name for each in layout.qos if each.no_decay}
        self._fades: Bools = np.array([key[0] != "qos" or key[2] not in keeps for key in limits.keys], np.bool_)
        self._ends: Bools = np.array([
            not model.safe_limits and key[1] in KINDS[:RUN_GPU_S] and key[2:] != (ROOT, "") for key in limits.keys
        ], np.bool_)  # fmt: skip
        self._factor = requests.qos.map(lambda name: factor.get(name, 1.0), np.float64)
        self._gpus, self._ahead = trace.gpus, _bounded(trace)
        self._limit = np.array(limits.room)
        self._start_s: dict[int, float] = {}
        self.counted_s = float(model.told(0.0))

    def started(self, row: int, now_s: float) -> None:
        """The job of this row runs; the table has taken its amounts. What it may use of GrpWall is not set aside."""
        if self.counts and any(True for _ in self._of(row)):
            self._start_s[row] = float(self.model.told(now_s))
            for limit, kind, amount in self._of(row):
                self.limits.room[limit] += amount if kind == WALL_S else 0.0

    def stopped(self, row: int, now_s: float) -> None:
        """Its run is over; the table gives its amounts back beside this."""
        if row in self._start_s:
            start_s, now_s = self._start_s.pop(row), float(self.model.told(now_s))
            self._use(row, start_s, now_s)
            for limit, kind, amount in self._of(row):
                self.limits.room[limit] -= amount if kind == WALL_S else self._moved(row, kind, now_s - start_s)

    def count(self, now_s: float, forget: bool) -> None:
        """All usage fades, or is forgotten, and what ran since the last time is added."""
        now_s = float(self.model.told(now_s))
        before, fade = self.used.copy(), decay_per_s(self.model) ** max(now_s - self.counted_s, 0.0)
        self.used = self.used * 0.0 if forget else np.where(self._fades, self.used * fade, self.used)
        self.limits.room += whole_minutes(before) - whole_minutes(self.used)
        for row, start_s in self._start_s.items():
            self._use(row, start_s, now_s)
        self.counted_s = now_s

    def gone(self) -> list[int]:
        """Rows of running jobs that have used up a limit, by what is counted: they are to end."""
        gone: Bools = self._ends & (whole_minutes(self.used) >= self._limit)
        return [row for row in sorted(self._start_s) if gone.any() and self._is_gone(row, gone)]

    def never(self, rows: Int64s) -> list[int]:
        """Those of the rows that wait for what no time and no running job will give back. While nothing runs."""
        comes_back = self._fades & (self.model.decay_half_life_s > 0)
        if self.model.usage_reset not in ("none", "now"):
            comes_back[:] = True
        return [row for row in rows.tolist() if any(
            limit >= 0 and self._kind[limit] in (GPU_S, WALL_S) and not comes_back[limit]
            and self.limits.room[limit] < amount
            for limit, amount in zip(self.limits.of_job[row].tolist(), self.limits.amount[row].tolist(), strict=True)
        )]  # fmt: skip

    def _is_gone(self, row: int, gone: Bools) -> bool:
        return any(limit >= 0 and gone[limit] for limit in self.limits.of_job[row].tolist())

    def _of(self, row: int) -> Iterator[tuple[int, int, float]]:
        """Limits of these kinds in which the job counts, their kind, and what it was taken to use."""
        for limit, amount in zip(self.limits.counted(row), self.limits.amount[row].tolist(), strict=True):
            if limit != NONE and self._kind[limit] != NONE:
                yield limit, self._kind[limit], amount

    def _use(self, row: int, start_s: float, now_s: float) -> None:
        ran_s = max(now_s - max(start_s, self.counted_s), 0.0)
        if not ran_s:
            return
        for limit, kind, _ in self._of(row):
            used = ran_s * float(self._factor[row]) * (1.0 if kind == WALL_S else float(self._gpus[row]))
            used *= decay_per_s(self.model) ** ran_s if self._fades[limit] else 1.0
            before = whole_minutes(self.used[limit])
            self.used[limit] += used if kind != RUN_GPU_S else 0.0
            self.limits.room[limit] += self._moved(row, kind, ran_s) + before - whole_minutes(self.used[limit])

    def _moved(self, row: int, kind: int, ran_s: float) -> float:
        """What a job no longer may use, of what was taken for it, once it has run so long."""
        taken = bool(self._ahead[row]) and (kind == RUN_GPU_S or (kind == GPU_S and self.model.safe_limits))
        return ran_s * float(self._gpus[row]) if taken else 0.0
