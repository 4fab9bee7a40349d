"""What people should know of a policy before they choose it: printed by `slurmsched policy`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Family(StrEnum):
    """What a policy is mainly after."""

    SERVICE = "service"
    DURATION = "duration"
    FAIRNESS = "fairness"
    DEADLINE = "deadline"
    HETEROGENEITY = "heterogeneity"
    BASELINE = "baseline"


class Input(StrEnum):
    """What a policy looks at beyond what every queue shows."""

    SERVICE = "attained service"
    PAST = "jobs that ended"
    DURATION = "expected run times"
    PROGRESS = "progress hints"
    DEADLINE = "deadline hints"
    SPEED = "speed by GPU type and size"
    SHARES = "shares of accounts"
    SIZES = "least and most GPUs of elastic jobs"
    PROFILE = "GPU use and memory of jobs"


class Use(StrEnum):
    """Levers of Slurm that a policy needs to have its whole effect."""

    ORDER = "order of pending jobs (nice or site factor)"
    REQUEUE = "requeue of running jobs (preemption.enabled)"
    START = "earliest start of pending jobs (StartTime; lever.start)"
    GPU_TYPE = "GPU type of pending jobs (placement.types)"
    SIZE = "number of GPUs of pending jobs (lever.size)"
    NODES = "nodes of pending jobs"
    POWER = "power of idle nodes"


@dataclass(frozen=True, slots=True)
class Card:
    """One policy. paper: authors, system, venue, year. needs: without one it degrades, and says so in its notes.

    only_with: needs that count only where this parameter is given and true. uses: in the order of their weight.
    on_slurm: what Slurm cannot do as the paper has it, and what is done instead; one sentence each. left_out: what of
    the paper is done nowhere, in replays neither; one sentence each.
    """

    family: Family
    paper: str
    needs: tuple[Input, ...] = ()
    only_with: tuple[tuple[Input, str], ...] = ()
    uses: tuple[Use, ...] = (Use.ORDER,)
    on_slurm: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def needed(self, parameters: Mapping[str, Any]) -> tuple[Input, ...]:
        """What the policy looks at with these parameters."""
        off = {need for need, name in self.only_with if not parameters.get(name)}
        return tuple(need for need in self.needs if need not in off)
