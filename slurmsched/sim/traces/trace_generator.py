"""Synthetic traces: from distributions with parameters, or fitted to a trace. The same seed gives the same trace."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from slurmsched.errors import ConfigError, InputError
from slurmsched.model.columns import Floats, Int64s, Labels
from slurmsched.model.durations import duration_s
from slurmsched.model.trace import RecordedTrace, Trace
from slurmsched.sim.traces.trace_statistics import EPOCH_WEEKDAY, HOUR_S, wall_clock_s

WEEK_H = 168
MONDAY_S = (7 - EPOCH_WEEKDAY) * 86_400.0  # Unix time of a Monday midnight
FEWEST = 5  # jobs of a size from which its own run times are fitted
# Office hours of a mixed GPU site, ours: half as many submissions at night, a third fewer at the weekend.
NIGHT, WEEKEND = 0.5, 0.67


@dataclass(frozen=True, slots=True)
class WorkloadLaw:
    """Distribution of run times [s]: lognormal (scale = median, shape = sigma of the log) or weibull."""

    kind: Literal["lognormal", "weibull"] = "lognormal"
    scale_s: float = 1_800.0
    shape: float = 1.8

    def __post_init__(self) -> None:
        if self.kind not in ("lognormal", "weibull"):
            raise ConfigError(f'must be "lognormal" or "weibull", got {self.kind!r}', key="durations")
        if not (0 < self.scale_s < math.inf and 0 < self.shape < math.inf):
            raise ConfigError("scale and shape must be above zero", key="durations")

    def draw(self, chance: np.random.Generator, jobs: int) -> Floats:
        """Run times, whole seconds, at least 1. (jobs,)."""
        if self.kind == "lognormal":
            drawn = self.scale_s * np.exp(self.shape * chance.standard_normal(jobs))
        else:
            drawn = self.scale_s * chance.weibull(self.shape, jobs)
        return np.maximum(np.round(drawn), 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class ObservedWorkload:
    """Run times as seen, drawn by inversion with straight lines between them. run_s: ascending [s]. (R,)."""

    run_s: Floats

    def draw(self, chance: np.random.Generator, jobs: int) -> Floats:
        """Run times, whole seconds, at least 1. (jobs,)."""
        shares = (np.arange(len(self.run_s)) + 0.5) / len(self.run_s)  # each value has the same weight, the ends too
        return np.maximum(np.round(np.interp(chance.random(jobs), shares, self.run_s)), 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticWorkload:
    """Who comes when, with what.

    jobs_per_day: mean rate.
    hourly: (168,) relative rate of each hour of the week from Monday 0 h; all equal = Poisson.
    sizes: GPUs -> weight.
    laws: GPUs -> run times; sizes without their own take `law`.
    users: weight of each user, busiest first.
    """

    jobs_per_day: float = 500.0
    hourly: Floats = field(default_factory=lambda: np.ones(WEEK_H))
    sizes: Mapping[int, float] = field(default_factory=lambda: {1: 0.7, 2: 0.1, 4: 0.08, 8: 0.1, 16: 0.02})
    law: WorkloadLaw | ObservedWorkload = field(default_factory=WorkloadLaw)
    laws: Mapping[int, WorkloadLaw | ObservedWorkload] = field(default_factory=dict)
    users: Floats = field(default_factory=lambda: zipf(20))

    def __post_init__(self) -> None:
        weights = np.array(list(self.sizes.values()), np.float64)
        if not len(weights) or min(self.sizes) < 1 or (weights < 0).any() or not 0 < weights.sum() < math.inf:
            raise ConfigError("needs GPU counts of at least 1 with weights, such as 1=70,8=30", key="sizes")
        if not 0 < self.jobs_per_day < math.inf:
            raise ConfigError("must be above zero", key="jobs_per_day")


def diurnal() -> Floats:
    """Relative rate of each hour of the week: most in the afternoon, fewer at night and at weekends. (168,)."""
    hour = np.arange(WEEK_H)
    day = 1 - (1 - NIGHT) * 0.5 * (1 + np.cos(2 * math.pi * (hour % 24 - 3) / 24))
    return day * np.where(hour < 120, 1.0, WEEKEND)


def zipf(users: int, exponent: float = 1.0) -> Floats:
    """Weights of users by rank. (users,). Raises ConfigError for fewer than one."""
    if users < 1:
        raise ConfigError("must be at least 1", key="users")
    return 1 / np.arange(1, users + 1) ** exponent


def parametric_workload(
    jobs_per_day: float, arrivals: str, durations: Any, scale: str, shape: float, sizes: str, users: int
) -> SyntheticWorkload:
    """The workload of these words: arrivals "poisson" or "diurnal", scale "30m", sizes "1=70,8=30".

    Raises ConfigError naming the parameter.
    """
    try:
        weights = {int(gpus): float(weight) for gpus, _, weight in (part.partition("=") for part in sizes.split(","))}
    except ValueError:
        raise ConfigError(f"{sizes!r} is not GPUs=weight, ... such as 1=70,8=30", key="sizes") from None
    try:
        law = WorkloadLaw(durations, duration_s(scale), shape)
    except ValueError as error:
        raise ConfigError(f"{scale!r} {error}", key="scale") from None
    hourly = diurnal() if arrivals == "diurnal" else np.ones(WEEK_H)
    return SyntheticWorkload(jobs_per_day, hourly, weights, law, users=zipf(users))


def generate_trace(workload: SyntheticWorkload, jobs: int, seed: int = 0, *, limits: bool = False) -> RecordedTrace:
    """A trace of that many jobs; the same arguments give the same trace. Begins on a Monday at 0 h.

    limits: make up time limits too, as Trace.with_user_limits.
    """
    chance = np.random.default_rng(seed)
    submit_s = _arrivals(workload, jobs, chance)
    gpus = _drawn(chance, list(workload.sizes), np.array(list(workload.sizes.values()), np.float64), jobs)
    run_s = workload.law.draw(chance, jobs)
    for size in sorted(workload.laws):
        chosen = gpus == size
        run_s[chosen] = workload.laws[size].draw(chance, int(chosen.sum()))
    width = len(str(len(workload.users)))
    names = [f"user{rank:0{width}d}" for rank in range(1, len(workload.users) + 1)]
    user = _drawn(chance, list(range(len(names))), workload.users, jobs)
    users = Labels(user.astype(np.int32), tuple(names)).take(np.arange(jobs))
    state = Labels.constant("COMPLETED", jobs)
    trace = Trace.of(np.arange(1, jobs + 1), gpus, submit_s, run_s, user=users, state=state)
    if limits:
        trace = trace.with_user_limits(seed).with_columns(limit_known=np.ones(jobs, np.bool_))
    return RecordedTrace(trace, "generated", MONDAY_S)


def fitted_workload(recorded: RecordedTrace) -> SyntheticWorkload:
    """The workload that a trace looks like: rate, hours of the week, sizes, run times by size, users.

    Jobs are independent: batches of one user and run times that repeat are lost. Raises InputError for a trace with
    fewer than two submission times.
    """
    trace = recorded.trace
    span_s = float(np.ptp(trace.submit_s))
    if span_s == 0:
        raise InputError("cannot be fitted: all jobs are submitted at one time")
    sizes, counts = np.unique(trace.gpus, return_counts=True)
    laws = {
        int(size): ObservedWorkload(np.sort(trace.duration_s[trace.gpus == size])) for size in sizes[counts >= FEWEST]
    }
    users = np.sort(np.bincount(trace.user.codes))[::-1].astype(np.float64) if trace.user.any_text else zipf(1)
    return SyntheticWorkload(
        jobs_per_day=len(trace) / (span_s / 86_400),
        hourly=np.ones(WEEK_H) if math.isnan(recorded.origin_s) else _hourly(recorded),
        sizes={int(size): float(count) for size, count in zip(sizes, counts, strict=True)},
        law=ObservedWorkload(np.sort(trace.duration_s)),
        laws=laws,
        users=users,
    )


def _hourly(recorded: RecordedTrace) -> Floats:
    """Submissions of each hour of the week over how often the trace has that hour; hours it lacks get the mean."""
    clock_s = wall_clock_s(recorded) - MONDAY_S
    hour = np.floor(clock_s / HOUR_S).astype(np.int64)
    seen = np.bincount(np.arange(hour.min(), hour.max() + 1) % WEEK_H, minlength=WEEK_H)
    rate = np.bincount(hour % WEEK_H, minlength=WEEK_H) / np.maximum(seen, 1)
    return np.where(seen > 0, rate, rate[seen > 0].mean())


def _arrivals(workload: SyntheticWorkload, jobs: int, chance: np.random.Generator) -> Floats:
    """Submit times of a Poisson process whose rate follows the hours of the week [s], whole seconds. (jobs,).

    By inversion: unit-rate times through the inverse of the cumulated rate.
    """
    hourly = workload.hourly / workload.hourly.mean() * workload.jobs_per_day / 24
    cumulated = np.concatenate([[0.0], np.cumsum(hourly)])
    times = np.cumsum(chance.exponential(size=jobs))
    weeks, rest = np.divmod(times, cumulated[-1])
    within_h = np.interp(rest, cumulated, np.arange(WEEK_H + 1.0))
    return np.floor((weeks * WEEK_H + within_h) * HOUR_S)


def _drawn(chance: np.random.Generator, values: list[int], weights: Floats, jobs: int) -> Int64s:
    return np.array(values, np.int64)[chance.choice(len(values), jobs, p=weights / weights.sum())]
