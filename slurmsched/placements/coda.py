"""CODA: the CPUs of a job are searched step by step while it runs; others get what it does not need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from slurmsched.estimators.cpu_memory_speeds import (
    SYNERGY,
    CpuMemoryProfile,
    CpusAndMemory,
    cpu_memory_profiles,
    profile_of,
)
from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.hints import parse_hints
from slurmsched.model.parameters import Part, Period, Range, check_choice, check_ranges
from slurmsched.placements.synergy import FIXED, RETUNED, TUNE, HostDemands, place_by_demand


@dataclass(frozen=True, slots=True)
class Coda:
    """Each job on the node with the fewest free GPUs that has its CPUs; these are searched step by step.

    A job starts with start_cpus for each GPU. After each step it is tried with the next larger number that was
    profiled, as long as its speed rises by more than gain. If the first try gains nothing, it is tried with smaller
    numbers, as long as its speed falls by no more. Memory is its part of a node by GPUs. Where there are too few CPUs
    a job gets at most its part, as with the placement synergy.

    start_cpus: for each GPU, 0 = its part of a node.
    step_s: run time of a step [s].
    gain: relative change of speed that counts.
    running: "fixed" or "retuned". "fixed": running jobs keep what they hold, so that there is no search.
    profiles: a table of speeds by CPUs and memory, or "synergy", which is shipped; it stands for what is measured.

    Raises ConfigError for a parameter out of range, InputError for a table that cannot be read.
    Source: Zhao et al. (CODA), ICDCS 2020: start from a guess, and step until the use of the GPU rises no more. The
    full paper was not at hand: the steps are ours.
    """

    start_cpus: Annotated[float, Range(0.0, 1_024.0)] = 0.0
    step_s: Period = 300.0
    gain: Part = 0.01
    running: str = FIXED
    profiles: str = SYNERGY

    def __post_init__(self) -> None:
        check_ranges(self, "placement")
        check_choice("running", self.running, (FIXED, RETUNED), of="placement")
        cpu_memory_profiles(self.profiles)

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold which GPUs now, with how many CPUs and how much memory."""
        return place_by_demand(snapshot, ranking, _SearchedDemands(snapshot, self), TUNE, self.running)


class _SearchedDemands(HostDemands):
    """The CPUs at which the search of each job is now."""

    def __init__(self, snapshot: Snapshot, rule: Coda) -> None:
        super().__init__(snapshot, rule.profiles)
        self._rule = rule

    def best(self, row: int, share: CpusAndMemory) -> CpusAndMemory | None:
        """As HostDemands."""
        profile = profile_of(self.profiles, parse_hints(self.jobs.comment[row]).model or "")
        start = self._rule.start_cpus or share.cpus
        if profile is None or not start:
            return None
        steps = int(float(self.jobs.executed_s[row]) / self._rule.step_s + ROUNDING)
        tried = search_steps(profile, start, share.memory_gib, self._rule.gain)
        return CpusAndMemory(tried[min(steps, len(tried) - 1)], share.memory_gib)


ROUNDING = 1e-9


@lru_cache(maxsize=4_096)
def search_steps(profile: CpuMemoryProfile, start: float, memory_gib: float, gain: float) -> tuple[float, ...]:
    """CPUs beside a GPU that a job is tried with, step by step; the last is what the search finds.

    start: of the first step. gain: relative change of speed that counts.
    """
    made, now = [start], start
    for larger in [level for level in profile.cpus if level > start]:
        made.append(larger)
        if profile.at(larger, memory_gib) <= profile.at(now, memory_gib) * (1 + gain):
            break
        now = larger
    for smaller in reversed([level for level in profile.cpus if level < start] if now == start else []):
        made.append(smaller)
        if profile.at(smaller, memory_gib) < profile.at(now, memory_gib) * (1 - gain):
            break
        now = smaller
    return (*made, now) if made[-1] != now else tuple(made)
