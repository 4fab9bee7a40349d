"""The daemon's own preemption in a replay: its sections of the configuration, and what they say of a move's cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurmsched.config import GangsConfig, OperationsConfig, PreemptionConfig, ScopeConfig
from slurmsched.config_file import parse_config
from slurmsched.errors import ConfigError
from slurmsched.planning.planner import Planner
from slurmsched.protocols import Policy

SECTIONS = ("preemption", "operations", "gangs")


@dataclass(frozen=True, slots=True)
class PreemptionSections:
    """The sections by which jobs lose their GPUs, which is always enabled, and gangs are promised some."""

    preemption: PreemptionConfig
    operations: OperationsConfig
    gangs: GangsConfig

    @classmethod
    def of(cls, sections: Mapping[str, Any]) -> PreemptionSections:
        """From the sections of these names, each with its defaults. Raises ConfigError naming a wrong key."""
        if unknown := sorted(sections.keys() - set(SECTIONS)):
            raise ConfigError(f"has no part in preemption; there are {', '.join(SECTIONS)}", key=unknown[0])
        tree = {**sections, "preemption": {**sections.get("preemption", {}), "enabled": True}}
        made = parse_config(tree)
        return cls(made.preemption, made.operations, made.gangs)

    def planner(self, policy: Policy, name: str) -> Planner:
        """The daemon's planner, for every job of the trace."""
        return Planner(
            policy,
            name,
            ScopeConfig(partitions=("*",)),
            preemption=self.preemption,
            gangs=self.gangs,
            operations_config=self.operations,
        )

    @property
    def model(self) -> dict[str, Any]:
        """Fields of SlurmctldSettings: the site's restart cost; only what a signal saved survives a requeue."""
        return {"restart_cost_s": self.preemption.restart_cost_s, "checkpoint_s": math.inf}
