"""What people should know about a policy before they choose it. `slurmsched policy` prints it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


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
