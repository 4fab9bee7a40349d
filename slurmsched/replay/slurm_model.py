"""How slurmctld behaves in time, as numbers; and the ideal cluster of the simulators of papers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.replay import slurm_settings

RESETS = ("none", "now", "daily", "weekly", "monthly", "quarterly", "yearly")


@dataclass(frozen=True, slots=True)
class SlurmModel:
    """slurmctld's delays, limits and weights; defaults are Slurm's own, but for the priority ones. Times in seconds.

    epoch_s: Unix time of the model's 0. tick_s: slurmctld's clock counts in these, and as often it looks whether a pass
    is asked for: for the main scheduler at whole multiples of it, for backfill at bf_phase_s, bf_phase_s + tick_s, ...,
    never before.
    batch_sched_delay_s: least time between two main passes that were asked for. has_epilog: with an Epilog the end of
    a job starts a pass of its own at once, unless `defer` is set; without one it asks for the next.
    sched_interval_s: between two passes over the whole queue, of which one is at sched_phase_s; the others look at the
    first queue_depth records.
    backfill: "slurm" as slurmctld does, "easy" reserves for the first job only, "none" leaves the main scheduler alone.
    bf_interval_s: from a backfill pass to the next; bf_window_s: how far ahead reservations go; bf_resolution_s:
    slots of reservations are rounded to it; bf_max_job_test: jobs looked at; bf_max_job_array_resv: tasks of an array
    that get a reservation; bf_node_space_size: records of reservations, at which a pass ends, 0 = bf_max_job_test;
    bf_max_job_user, _part, _user_part, _start: per pass, 0 = no limit.
    shortest_run: a job of one node takes it from the shortest run of neighbouring nodes that fit, as Slurm 24.11
    does; else the lowest that fits. last_of_all: backfill has a job begin when the last of the running jobs that it
    took away ends, wherever that runs, as Slurm 24.11 does; else the last of those on the nodes that the job gets.
    weight_*: PriorityWeight*; max_age_s: PriorityMaxAge; favor_small: PriorityFavorSmall; calc_period_s: ages are
    brought up to date this often. base_priority: what the other factors add, equal for all.
    decay_half_life_s: PriorityDecayHalfLife, 0 = usage never fades; usage_reset: PriorityUsageResetPeriod, "none",
    "now", "daily", "weekly", "monthly", "quarterly" or "yearly"; fair_tree: unless NO_FAIR_TREE; damping:
    FairShareDampeningFactor; billing_max: PriorityFlags=MAX_TRES. safe_limits: AccountingStorageEnforce=safe, a job
    starts only if what its limits leave lasts to its end.
    epilog_s: from the end of a job to the return of what it held. kill_wait_s: from a requeue to that.
    requeue_delay_s: from then until the job may start again (cred_expire; requeue_delay from 25.11 on).
    time_limit_check_s: a job is found over its limit at most this much late; a run beyond its time limit ends half
    of it late, one whose GPU minutes or wall time are used up at the next whole multiple.
    rpc_latency_s, writes_per_s: each lever we write takes effect so long after it was planned, and so many a second;
    0 writes a second = all at once. Steps of preemptions take effect at once: each waits for the answer before it.
    min_job_age_s: how long an ended job is shown.
    restart_cost_s: run time without progress after every restart. checkpoint_s: progress made in a run survives
    in steps of this; 0 = all that was made until the requeue, infinite = nothing but what a signal saved.
    save_s: from the signal that a job's ckpt hint asks for until the work it had done by then is safe; it works on
    meanwhile. leaves_saved: it requeues itself then; else it works until it is told to go.
    """

    epoch_s: float = 0.0
    tick_s: float = 1.0
    bf_phase_s: float = 0.0
    batch_sched_delay_s: float = 3.0
    sched_interval_s: float = 60.0
    sched_phase_s: float = 0.0
    queue_depth: int = 100
    has_epilog: bool = False
    defer: bool = False
    backfill: Literal["slurm", "easy", "none"] = "slurm"
    bf_interval_s: float = 30.0
    bf_window_s: float = 86_400.0
    bf_resolution_s: float = 60.0
    bf_max_job_test: int = 500
    bf_max_job_array_resv: int = 20
    bf_node_space_size: int = 0
    bf_max_job_user: int = 0
    bf_max_job_part: int = 0
    bf_max_job_user_part: int = 0
    bf_max_job_start: int = 0
    shortest_run: bool = False
    last_of_all: bool = False
    weight_age: int = 1_000
    weight_job_size: int = 0
    weight_partition: int = 0
    weight_qos: int = 0
    weight_tres: tuple[float, float, float] = (0.0, 0.0, 0.0)  # of GPUs, CPUs and memory
    weight_fairshare: int = 0
    decay_half_life_s: float = 7 * 86_400.0
    usage_reset: str = "none"
    fair_tree: bool = True
    damping: float = 1.0
    billing_max: bool = False
    safe_limits: bool = False
    max_age_s: float = 7 * 86_400.0
    favor_small: bool = False
    calc_period_s: float = 300.0
    base_priority: int = 10_000
    epilog_s: float = 0.0
    kill_wait_s: float = 30.0
    requeue_delay_s: float = 120.0
    time_limit_check_s: float = 30.0
    rpc_latency_s: float = 0.0
    writes_per_s: float = 0.0
    min_job_age_s: float = 300.0
    restart_cost_s: float = 30.0
    checkpoint_s: float = 0.0
    save_s: float = 10.0
    leaves_saved: bool = False

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not isinstance(value, str | tuple) and "phase" not in name and not value >= 0:
                raise ConfigError(f"must not be negative, got {value}", key=f"model.{name}")
        if self.backfill not in ("slurm", "easy", "none"):
            raise ConfigError(f'must be "slurm", "easy" or "none", got {self.backfill!r}', key="model.backfill")
        if not self.damping > 0:
            raise ConfigError(f"must be above 0, got {self.damping}", key="model.damping")
        if 0 < self.decay_half_life_s < 1:
            raise ConfigError(f"must be 0 or at least 1, got {self.decay_half_life_s}", key="model.decay_half_life_s")
        if self.usage_reset not in RESETS:
            raise ConfigError(f"must be one of {', '.join(RESETS)}, got {self.usage_reset!r}", key="model.usage_reset")

    def told(self, time_s: Any) -> Any:
        """The time as slurmctld's clock has it: whole ticks of Unix time, rounded down. A number or an array."""
        return self.floor(time_s, self.tick_s)

    def floor(self, time_s: Any, step_s: float) -> Any:
        """The time rounded down to a multiple of step_s in Unix time; unchanged if step_s is 0."""
        if not step_s:
            return time_s
        phase_s = -self.epoch_s % step_s
        return np.floor((time_s - phase_s) / step_s + 1e-9) * step_s + phase_s

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], **others: float) -> SlurmModel:
        """The model of a site: `scontrol show config` as slurm.site.parse_settings gives it.

        others: fields that slurm.conf does not tell (epilog_s, rpc_latency_s, restart_cost_s, ...).
        Raises ConfigError for a value that is not Slurm's, naming its key.
        """
        values = slurm_settings.scheduler(settings) | slurm_settings.priority(settings)
        return cls(**(values | slurm_settings.times(settings) | others))


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of SlurmModel by name, as given. Raises ConfigError for one that is not there, and for no number."""
    known = {spec.name: spec.default for spec in fields(SlurmModel)}
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"is no setting of the model; there are {', '.join(known)}", key=f"model.{name}")
        if isinstance(known[name], int | float) and not isinstance(value, int | float):
            raise ConfigError(f"must be a number, got {value!r}", key=f"model.{name}")
    return dict(given)


def ideal(backfill: Literal["easy", "none"] = "none") -> SlurmModel:
    """The cluster of papers' simulators: every event is acted on at once, nothing costs time, order is by submit."""
    return SlurmModel(
        tick_s=0.0, batch_sched_delay_s=0.0, sched_interval_s=0.0, queue_depth=10**9, backfill=backfill,
        bf_interval_s=0.0, bf_window_s=math.inf, bf_resolution_s=0.0, bf_max_job_test=10**9, weight_age=0,
        kill_wait_s=0.0, requeue_delay_s=0.0, time_limit_check_s=0.0, restart_cost_s=0.0,
    )  # fmt: skip
