"""The daemon's own preemption in a replay: its sections of the configuration, and what they say of a move's cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurmsched.config import Acts, Gangs, Preemption, Scope, parse_config
from slurmsched.errors import ConfigError
from slurmsched.planning.planner import Planner
from slurmsched.protocols import Policy

SECTIONS = ("preemption", "acts", "gangs")


@dataclass(frozen=True, slots=True)
class Preempting:
    """The sections by which jobs lose their GPUs, which is always enabled, and gangs are promised some."""

    preemption: Preemption
    acts: Acts
    gangs: Gangs

    @classmethod
    def of(cls, sections: Mapping[str, Any]) -> Preempting:
        """From the sections of these names, each with its defaults. Raises ConfigError naming a wrong key."""
        if unknown := sorted(sections.keys() - set(SECTIONS)):
            raise ConfigError(f"has no part in preemption; there are {', '.join(SECTIONS)}", key=unknown[0])
        tree = {**sections, "preemption": {**sections.get("preemption", {}), "enabled": True}}
        made = parse_config(tree)
        return cls(made.preemption, made.acts, made.gangs)

    def planner(self, policy: Policy, name: str) -> Planner:
        """The daemon's planner, for every job of the trace."""
        return Planner(
            policy, name, Scope(partitions=("*",)), taking=self.preemption, gangs=self.gangs, limits=self.acts
        )

    @property
    def model(self) -> dict[str, Any]:
        """Fields of SlurmModel: a move costs what the site believes, and only what a signal saved survives it."""
        return {"restart_cost_s": self.preemption.restart_cost_s, "checkpoint_s": math.inf}
