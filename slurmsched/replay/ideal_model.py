"""How the ideal cluster of papers' simulators behaves in time, as numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from slurmsched.errors import ConfigError

Speed = Callable[[int, int], float]  # GPUs of a job, nodes they are on -> share of the recorded speed


def recorded_speed(gpus: int, nodes: int) -> float:
    """Every job runs as long as recorded, wherever it is."""
    return 1.0


@dataclass(frozen=True, slots=True)
class IdealModel:
    """A cluster that does what the plan says at once, or at the end of a round. Times in seconds.

    round_s: decisions fall at multiples of it, and GPUs of a job that ends in between idle until then; 0 = whenever
    something happens. clock_s: a change of order that comes with time is acted on at the next multiple of it; 0 = to
    the instant.
    start_cost_s, restart_cost_s: run time without progress at the first and at every later start.
    checkpoint_s: progress of a run survives preemption in steps of this; 0 = all of it.
    speed: share of the recorded speed by GPUs and nodes of a placement.
    Raises ConfigError for a negative or infinite time.
    """

    round_s: float = 0.0
    clock_s: float = 1.0
    start_cost_s: float = 0.0
    restart_cost_s: float = 0.0
    checkpoint_s: float = 0.0
    speed: Speed = recorded_speed

    def __post_init__(self) -> None:
        for name in ("round_s", "clock_s", "start_cost_s", "restart_cost_s", "checkpoint_s"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ConfigError(f"must be a time of at least 0 s, got {value}", key=f"model.{name}")

    def wake_s(self, at_s: float, now_s: float) -> float:
        """When a change of order at at_s is acted on, always later than now_s."""
        if at_s == math.inf or not self.clock_s:
            return max(at_s, now_s + 1e-3)  # no shorter steps, lest time stand still
        return max(math.ceil(at_s / self.clock_s), math.floor(now_s / self.clock_s) + 1) * self.clock_s
