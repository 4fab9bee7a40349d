"""How slurmctld behaves in time, as numbers; and the ideal cluster of the simulators of papers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from slurmsched.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SlurmModel:
    """slurmctld's delays and limits; defaults are Slurm's own. Times in seconds.

    batch_sched_delay_s: least time between two main scheduling passes.
    backfill: "slurm" gives every tested job a reservation of whole nodes, "easy" the first one only, "none"
    leaves the main scheduler alone. bf_interval_s: between two backfill passes; bf_window_s: how far ahead
    reservations go; bf_resolution_s: ends of jobs are rounded up to it; bf_max_job_test: jobs looked at.
    weight_age, max_age_s: PriorityWeightAge and PriorityMaxAge. base_priority: the other factors, equal for all.
    kill_wait_s: from a requeue to the return of the GPUs. requeue_delay_s: from then until the job may start again
    (cred_expire, requeue_delay from 25.11 on). min_job_age_s: how long an ended job is shown.
    restart_cost_s: run time without progress after every restart. checkpoint_s: progress made in a run survives
    in steps of this; 0 = all that was made until the requeue.
    """

    batch_sched_delay_s: float = 3.0
    backfill: Literal["slurm", "easy", "none"] = "slurm"
    bf_interval_s: float = 30.0
    bf_window_s: float = 86_400.0
    bf_resolution_s: float = 60.0
    bf_max_job_test: int = 500
    weight_age: int = 1_000
    max_age_s: float = 7 * 86_400.0
    base_priority: int = 10_000
    kill_wait_s: float = 30.0
    requeue_delay_s: float = 120.0
    min_job_age_s: float = 300.0
    restart_cost_s: float = 30.0
    checkpoint_s: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not isinstance(value, str) and not value >= 0:
                raise ConfigError(f"must not be negative, got {value}", key=f"model.{name}")
        if self.backfill not in ("slurm", "easy", "none"):
            raise ConfigError(f'must be "slurm", "easy" or "none", got {self.backfill!r}', key="model.backfill")

    @property
    def reservations(self) -> int:
        """Most reservations of one backfill pass."""
        return 1 if self.backfill == "easy" else self.bf_max_job_test


def ideal(backfill: Literal["easy", "none"] = "none") -> SlurmModel:
    """The cluster of papers' simulators: every event is acted on at once, nothing costs time, order is by submit."""
    return SlurmModel(
        batch_sched_delay_s=0.0, backfill=backfill, bf_interval_s=0.0, bf_window_s=math.inf, bf_resolution_s=0.0,
        bf_max_job_test=10**9, weight_age=0, kill_wait_s=0.0, requeue_delay_s=0.0, restart_cost_s=0.0,
    )  # fmt: skip
