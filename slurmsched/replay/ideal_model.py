"""How the ideal cluster of papers' simulators behaves in time, as numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model import Labels
from slurmsched.model.columns import Floats, Int64s

NodeChoice = Literal["fullest", "rest-emptiest"]
NODE_CHOICES: tuple[NodeChoice, ...] = ("fullest", "rest-emptiest")
Steps = Sequence[tuple[int, float]]  # from so many GPUs on, so many seconds; GPUs ascending


@dataclass(frozen=True, slots=True)
class IdealModel:
    """A cluster that does what the plan says at once, or at the end of a round. Times in seconds.

    round_s: decisions fall at multiples of it, and GPUs of a job that ends in between idle until then; 0 = whenever
    something happens. clock_s: a change of order that comes with time is acted on at the next multiple of it; 0 = to
    the instant.
    start_cost_s, restart_cost_s: run time without progress at the first and at every later start. resize_cost_s: the
    same when a running job gets other GPUs.
    checkpoint_s: progress of a run survives preemption in steps of this; 0 = all of it.
    profile_gpus: GPUs besides the cluster's on which every job of at most profile_most_gpus runs first, for at most
    profile_s; who has not ended then comes to the cluster and begins anew (see replay.profiling). 0 = no such stage.
    tells_progress: jobs bear the hint `progress`, as a user's loop would write it, always up to date; with physics.

    What single simulators do besides, all off by default (sources: docs/reproduced.md):
    slowdown: run time of every job over the recorded one; policies see the longer one.
    restart_cost_by_gpus: restart_cost_s of jobs with at least so many GPUs.
    event_cost_s: progress that every running job loses whenever anything happens, at most what it made since the
    event before; by model ("" = any other) and GPUs.
    costs_known: the time limits that a policy sees grow by such costs, so that limit less executed is what is left.
    node_gpus: the plan counts GPUs, but a job starts only on the fewest nodes of this many GPUs; if there is no such
    place it waits for the next plan, and the GPUs it was to get idle. 0 = a start always succeeds.
    node_choice: which node a gang gets there. "fullest": the one left fullest; "rest-emptiest": the same, but
    what a gang needs besides whole nodes is taken from the emptiest.
    refusal_blocks: a start that fails there holds back those behind it in the plan.
    rounds_follow: a round begins when the one before is over, which is when round_s is over or all its jobs have
    ended, and not at a multiple of round_s.
    hold_s: there, a plan stands for so long at least.
    adapts: table of throughputs by whose steps jobs train, and change their batch size between such rounds (see
    replay.adapting); "" = run times as recorded.
    Raises ConfigError for a negative or infinite time, or steps that do not ascend.
    """

    round_s: float = 0.0
    clock_s: float = 1.0
    start_cost_s: float = 0.0
    restart_cost_s: float = 0.0
    resize_cost_s: float = 0.0
    checkpoint_s: float = 0.0
    profile_gpus: int = 0
    profile_s: float = 200.0
    profile_most_gpus: int = 8
    tells_progress: bool = False
    restart_cost_by_gpus: Steps = ()
    event_cost_s: Mapping[str, Steps] = field(default_factory=dict)
    costs_known: bool = False
    node_gpus: int = 0
    node_choice: NodeChoice = "fullest"
    refusal_blocks: bool = False
    slowdown: float = 1.0
    rounds_follow: bool = False
    hold_s: float = 0.0
    adapts: str = ""

    def __post_init__(self) -> None:
        for name in ("round_s", "clock_s", "start_cost_s", "restart_cost_s", "resize_cost_s", "checkpoint_s", "hold_s"):
            _check_time(name, getattr(self, name))
        if not isinstance(self.slowdown, int | float) or not 0 < self.slowdown < math.inf:
            raise ConfigError(f"must be a number above 0, got {self.slowdown}", key="model.slowdown")
        if self.node_choice not in NODE_CHOICES:
            words = ", ".join(NODE_CHOICES)
            raise ConfigError(f"must be one of {words}, got {self.node_choice!r}; first fit is "
                              "--placement consolidated:node_choice=first", key="model.node_choice")  # fmt: skip
        if not isinstance(self.node_gpus, int) or self.node_gpus < 0:
            raise ConfigError(f"must be a number of GPUs, or 0, got {self.node_gpus}", key="model.node_gpus")
        if not isinstance(self.tells_progress, bool):
            raise ConfigError(f"must be true or false, got {self.tells_progress!r}", key="model.tells_progress")
        if self.rounds_follow and not self.round_s:
            raise ConfigError("needs round_s, the longest that a round takes", key="model.rounds_follow")
        if not isinstance(self.event_cost_s, Mapping):
            raise ConfigError(f"must be a table of steps by model, got {self.event_cost_s!r}", key="model.event_cost_s")
        self._check_profile()
        _check_steps("restart_cost_by_gpus", self.restart_cost_by_gpus)
        for steps in self.event_cost_s.values():
            _check_steps("event_cost_s", steps)

    def _check_profile(self) -> None:
        for name, least in (("profile_gpus", 0), ("profile_most_gpus", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"must be a number of GPUs of at least {least}, got {value!r}", key=f"model.{name}")
        _check_time("profile_s", self.profile_s)
        if self.profile_gpus and not self.profile_s:
            raise ConfigError("must be a time above 0 s: jobs are profiled for so long", key="model.profile_s")
        if self.profile_gpus and (self.adapts or self.rounds_follow or self.slowdown != 1.0):
            raise ConfigError("goes with none of adapts, rounds_follow and slowdown", key="model.profile_gpus")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> IdealModel:
        """The model with these fields. Raises ConfigError for a name that is none of them."""
        known = [spec.name for spec in fields(cls)]
        if unknown := sorted(settings.keys() - set(known)):
            raise ConfigError(f"is no setting of the ideal cluster; there are {', '.join(known)}", key=unknown[0])
        return cls(**settings)

    @property
    def quirky(self) -> bool:
        """Whether anything is set that only single simulators do."""
        return bool(self.restart_cost_by_gpus or self.event_cost_s or self.costs_known or self.node_gpus)

    def restart_costs(self, gpus: Int64s) -> Floats:
        """Run time without progress at a restart of jobs with so many GPUs [s]. (J,)."""
        return _at(gpus, self.restart_cost_by_gpus, self.restart_cost_s)

    def event_costs(self, models: Labels, gpus: Int64s) -> Floats:
        """Progress that these jobs lose at an event [s]. models, gpus: (J,)."""
        costs = _at(gpus, self.event_cost_s.get("", ()), 0.0)
        for model in self.event_cost_s.keys() & set(models.names):
            costs = np.where(models.isin([model]), _at(gpus, self.event_cost_s[model], 0.0), costs)
        return costs

    def wake_s(self, at_s: float, now_s: float) -> float:
        """When a change of order at at_s is acted on, always later than now_s."""
        if at_s == math.inf or not self.clock_s:
            return max(at_s, now_s + 1e-3)  # no shorter steps, lest time stand still
        return max(math.ceil(at_s / self.clock_s), math.floor(now_s / self.clock_s) + 1) * self.clock_s


def _at(gpus: Int64s, steps: Steps, below: float) -> Floats:
    """The step of each number of GPUs, `below` under the first. (J,)."""
    least = np.array([step[0] for step in steps], np.int64)
    values = np.array([below, *(step[1] for step in steps)], np.float64)
    found: Floats = values[np.searchsorted(least, gpus, side="right")]
    return found


def _check_time(name: str, value: float) -> None:
    if not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ConfigError(f"must be a time of at least 0 s, got {value}", key=f"model.{name}")


def _check_steps(name: str, steps: Steps) -> None:
    if isinstance(steps, str) or not all(isinstance(step, list | tuple) and len(step) == 2 for step in steps):
        raise ConfigError(f"must be steps of GPUs and seconds, [[1, 5], [9, 60]], got {steps!r}", key=f"model.{name}")
    gpus = [step[0] for step in steps]
    if gpus != sorted(set(gpus)):
        raise ConfigError(f"GPUs must ascend, got {gpus}", key=f"model.{name}")
    for step in steps:
        _check_time(name, step[1])
