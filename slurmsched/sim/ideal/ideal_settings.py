"""How the ideal cluster of papers' simulators behaves in time, as numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from slurmsched.errors import ConfigError

TIMES = ("round_s", "clock_s", "start_cost_s", "restart_cost_s", "resize_cost_s", "checkpoint_s")


@dataclass(frozen=True, slots=True)
class IdealSettings:
    """A cluster that does what the plan says at once, or at the end of a round. Times in seconds.

    round_s: Decisions fall at multiples of it. GPUs of a job that ends in between idle until then. 0: at each event.
    clock_s: A change of order that comes with time takes effect at the next multiple of it. 0: at once.
    start_cost_s: Run time without progress at the first start.
    restart_cost_s: Run time without progress at every later start.
    resize_cost_s: Run time without progress when a running job gets other GPUs.
    checkpoint_s: Progress of a run survives preemption in steps of this. 0: all of it.
    tells_progress: Jobs have the hint `progress`, always up to date. Needs physics.
    Raises ConfigError for a negative or infinite time.
    What single simulators do besides: sim.experiments.published_settings.
    """

    round_s: float = 0.0
    clock_s: float = 1.0
    start_cost_s: float = 0.0
    restart_cost_s: float = 0.0
    resize_cost_s: float = 0.0
    checkpoint_s: float = 0.0
    tells_progress: bool = False

    def __post_init__(self) -> None:
        for name in TIMES:
            check_time(name, getattr(self, name))
        if not isinstance(self.tells_progress, bool):
            raise ConfigError(f"must be true or false, got {self.tells_progress!r}", key="model.tells_progress")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """The settings with these fields. Raises ConfigError for a name that is none of them."""
        known = [spec.name for spec in fields(cls)]
        if unknown := sorted(settings.keys() - set(known)):
            raise ConfigError(f"is no setting of the ideal cluster; there are {', '.join(known)}", key=unknown[0])
        return cls(**settings)

    @property
    def costs_vary(self) -> bool:
        """Whether a preemption costs some jobs more than others."""
        return False

    @property
    def preemption_text(self) -> str:
        """What a preemption costs a job, as text."""
        if self.costs_vary:
            return "costs as the settings say"
        if not self.restart_cost_s and not self.checkpoint_s:
            return "free: a job keeps all its work and restarts at once"
        kept = f"keeps its work in steps of {self.checkpoint_s:g} s" if self.checkpoint_s else "keeps all its work"
        return f"a job {kept} and restarts in {self.restart_cost_s:g} s"

    def takes_effect_s(self, at_s: float, now_s: float) -> float:
        """When a change of order at at_s takes effect, always later than now_s."""
        if at_s == math.inf or not self.clock_s:
            return max(at_s, now_s + 1e-3)  # no shorter steps, lest time stand still
        return max(math.ceil(at_s / self.clock_s), math.floor(now_s / self.clock_s) + 1) * self.clock_s


def check_time(name: str, value: float) -> None:
    """Raises ConfigError for what is no time of at least 0 s."""
    if not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ConfigError(f"must be a time of at least 0 s, got {value}", key=f"model.{name}")
