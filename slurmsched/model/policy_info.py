"""What people should know about a policy before they choose it (`slurmsched policy`), and its criteria in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from math import isfinite
from typing import Any

from slurmsched.model.durations import duration, gpu_hours


class PolicyFamily(StrEnum):
    """What a policy is mainly for."""

    SERVICE = "service"
    DURATION = "duration"
    FAIRNESS = "fairness"
    DEADLINE = "deadline"
    HETEROGENEITY = "heterogeneity"
    ELASTIC = "elastic"
    BASELINE = "baseline"


class PolicyInput(StrEnum):
    """Inputs of a policy that not every queue has."""

    SERVICE = "attained service"
    PAST = "jobs that ended"
    DURATION = "expected run times"
    PROGRESS = "progress hints"
    DEADLINE = "deadline hints"
    SPEED = "speed by GPU type and size"
    SHARES = "shares of accounts"
    SIZES = "least and most GPUs of elastic jobs"
    PROFILE = "GPU use and memory of jobs"


class PolicyLever(StrEnum):
    """Levers of Slurm that a policy needs for its full effect."""

    ORDER = "order of pending jobs (nice or site factor)"
    REQUEUE = "requeue of running jobs (preemption.enabled)"
    START = "earliest start of pending jobs (StartTime; lever.start)"
    GPU_TYPE = "GPU type of pending jobs (placement.types)"
    SIZE = "number of GPUs of pending jobs (lever.size)"
    NODES = "nodes of pending jobs"
    POWER = "power of idle nodes"


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """One policy.

    family: what it is mainly for.
    paper: authors, system, venue, year.
    needs: its inputs. Without one the policy works less well, and says so in its notes.
    only_with: inputs that are needed only if this parameter is true.
    uses: levers of Slurm, the most important first.
    on_slurm: what Slurm cannot do as in the paper, and what is done instead.
    left_out: what of the paper is not done, in replays either.
    criteria: words for its criteria, by key of Ranking.why. {} is the value with its unit, {at} a Unix time, {0+} a
        number that says nothing below 0; words without these are shown where the value is true.
        Words parted by | are those of the values 0, 1, 2 and so on.
    packages: Python packages of an extra that it cannot do without, by the names they are imported by.
    """

    family: PolicyFamily
    paper: str
    needs: tuple[PolicyInput, ...] = ()
    only_with: tuple[tuple[PolicyInput, str], ...] = ()
    uses: tuple[PolicyLever, ...] = (PolicyLever.ORDER,)
    on_slurm: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    criteria: Mapping[str, str] = field(default_factory=dict)

    def needed(self, parameters: Mapping[str, Any]) -> tuple[PolicyInput, ...]:
        """The inputs that the policy uses with these parameters."""
        off = {need for need, name in self.only_with if not parameters.get(name)}
        return tuple(need for need in self.needs if need not in off)


def policy_info(policy: object) -> PolicyInfo | None:
    """What a policy, or its class, says about itself in its attribute `about`; None if it says nothing."""
    found = getattr(policy, "about", None)
    return found if isinstance(found, PolicyInfo) else None


def criteria_words(policy: object) -> Mapping[str, str]:
    """A policy's words for its criteria; none where it says nothing about itself."""
    about = policy_info(policy)
    return {} if about is None else about.criteria


# Words for the criteria of allocation.rounds.
ROUND_CRITERIA = {"in_round": "in this round", "done_s": "got {} so far", "beside": "on GPUs of job {0+}"}

# Sentences about Slurm that several policies share.

SEVERAL_GPU_TYPES = (
    "Several GPU types at once: Slurm gives every node of a job the same. So only a gang of several nodes, with "
    "as many GPUs on each and no type in its request, is sent to nodes of both types. A job of one node is sent "
    "to the type with most of its GPUs. Components of a heterogeneous job are left to its user."
)
NEEDS_PREEMPTION = (
    "An order does not stop running jobs. With [preemption] enabled = true, more urgent jobs take GPUs from jobs "
    "that may be requeued, after their quantum. Without it the policy acts when GPUs become free."
)
DEADLINE_NOT_PROMISED = (
    "A job whose deadline cannot be promised is not rejected. It waits as best effort, and the plan says so."
)
RESIZE_BY_REQUEUE = (
    "Slurm does not resize a running job. A job changes its size only by a requeue, from its last checkpoint."
)
ROUNDS_ARE_LEASES = (
    "Rounds of minutes are too short for requeues of jobs that take long to start. On Slurm a round is the lease "
    "of [preemption] quantum_s, 30 minutes by default."
)
ANY_PARTITION = "Partitions: a job may be put beside one on nodes that it may not have."
NO_SHARED_GPUS = (
    "No policy makes jobs share GPUs. A job that asks for a whole GPU keeps one. Slurm chooses the GPUs of jobs "
    "that ask for shards or MPS. The second job of each pair goes after all others of the round, to GPUs of its "
    "own. Time and progress are counted as if they shared, and `plan` says how many pairs there are."
)


# A policy's criteria in words and units: "used 1.0 GPU h, in this queue since 2026-11-30T01:28:00Z".


# What the planner's own criteria are called; those of a policy are in its PolicyInfo.
WORDS = {
    "decided_by": "decided by {}",
    "over_age_cap": "waited longer than the age cap",
    "joins_shared_gpu": "its part of a shared GPU is free",
    "over_soft_cap": "beyond a soft cap",
    "idle_gpus": "a running job of its user does not use its GPUs",
}
AT, NOT_BELOW_0 = "{at}", "{0+}"  # in place of {}: a Unix time; a number that is not shown below 0


def times_in(words: Mapping[str, str]) -> frozenset[str]:
    """The criteria that are Unix times. words: as PolicyInfo.criteria."""
    return frozenset(name for name, text in words.items() if AT in text)


def criteria(values: Mapping[str, Any], words: Mapping[str, str]) -> str:
    """The criteria of one job in words, without those that are empty. words: as PolicyInfo.criteria."""
    return ", ".join(filter(None, (criterion(name, value, words) for name, value in values.items())))


def criterion(name: str, value: Any, words: Mapping[str, str]) -> str:
    """One criterion; nothing for one that is not known, endless, empty or not the case. Without words: by its name."""
    plain = _name_without_unit(name) if isinstance(value, bool) else f"{_name_without_unit(name)} {{}}"
    text = words.get(name) or WORDS.get(name, plain)
    if "|" in text:
        return _choice(text.split("|"), value)
    if not any(mark in text for mark in ("{}", AT, NOT_BELOW_0)):
        return text if value else ""
    if value == "" or (isinstance(value, float) and not isfinite(value)) or (NOT_BELOW_0 in text and value < 0):
        return ""
    if AT in text:
        return text.replace(AT, f"{datetime.fromtimestamp(value, UTC):%Y-%m-%dT%H:%M:%SZ}")
    return text.replace("{}", _value_with_unit(name, value)).replace(NOT_BELOW_0, _value_with_unit(name, value))


def _choice(texts: Sequence[str], value: float) -> str:
    return texts[int(value)] if 0 <= value < len(texts) else ""


def _name_without_unit(name: str) -> str:
    """The name of a criterion without its unit."""
    if "_per_" in name:
        return name.replace("_gpu_s", "_GPU_s").replace("_", " ")
    for unit in ("_gpu_s", "_s"):
        if name.endswith(unit):
            return name.removesuffix(unit).replace("_", " ")
    return name.replace("_", " ")


def _value_with_unit(name: str, value: Any) -> str:
    """A value with its unit, which ends the name."""
    unit = next((show for end, show in _UNITS.items() if name.endswith(end)), None)
    if unit is not None and "_per_" not in name:
        return unit(float(value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


_UNITS: dict[str, Callable[[float], str]] = {"_gpu_s": gpu_hours, "_s": duration}
