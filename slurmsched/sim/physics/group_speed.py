"""Groups: two to four jobs on the same GPUs, or jobs on one node, at the speeds that interference leaves them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.errors import ConfigError, InputError
from slurmsched.estimators.group_speeds import MOST_JOBS, GroupSpeeds, check_group_speeds, gpu_share, kept_beside
from slurmsched.model import Assignments, Snapshot
from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.hints import parse_hints
from slurmsched.plain_text import pluralize
from slurmsched.sim.physics.change_costs import ChangeCosts
from slurmsched.sim.physics.interconnect_speed import places, sharing

LEAST = 0.01  # speed of a guest of a job that leaves no time


@dataclass(frozen=True, slots=True)
class GroupSpeed(ChangeCosts):
    """Speed 1 alone; in a group of two to four jobs on the same GPUs what estimators.group_speeds leaves each.

    stages: table of stages; see GroupSpeeds.
    pairs: table of pairs.
    type: the GPU type of the pairs.
    most: jobs on one GPU.
    memory_gib: of a GPU [GiB]; jobs of a group whose hints `gpu_mem` add up to more are an error; 0 = memory is no
        limit.
    guaranteed: in a group with the hint `share=yes` in all jobs but one, that one keeps its speed. The others get the
        time in which its GPUs are idle, by stages (Xiao et al.: AntMan, OSDI '20, section 3).
    node_loss: part of the loss on the same GPU, in logarithms, that jobs on other GPUs of a node cause; of a job on
        several nodes the slowest counts.

    Jobs share all their GPUs or none. When one ends the others go on at the speed of the smaller group.
    Raises ConfigError for numbers out of range and InputError for tables that cannot be read.
    """

    shared: ClassVar[bool] = True
    colocates: ClassVar[bool] = True

    stages: str = "muri"
    pairs: str = "gavel"
    type: str = "v100"
    most: int = MOST_JOBS
    memory_gib: float = 0.0
    guaranteed: bool = False
    node_loss: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.most, int) or isinstance(self.most, bool) or not 1 <= self.most <= MOST_JOBS:
            raise ConfigError(f"must be 1 to {MOST_JOBS} jobs, got {self.most!r}", key="physics.most")
        if not isinstance(self.memory_gib, int | float) or not 0 <= self.memory_gib < np.inf:
            raise ConfigError(f"must be at least 0 GiB, got {self.memory_gib!r}", key="physics.memory_gib")
        if not isinstance(self.node_loss, int | float) or not 0 <= self.node_loss <= 1:
            raise ConfigError(f"must be from 0 to 1, got {self.node_loss!r}", key="physics.node_loss")
        check_group_speeds(self._speeds)

    @property
    def _speeds(self) -> GroupSpeeds:
        return GroupSpeeds(self.stages, self.pairs, self.type)

    def speed(self, snapshot: Snapshot, held: Assignments) -> Floats:
        """See protocols.Physics."""
        found, jobs = np.ones(len(held.rows)), snapshot.jobs
        for group in sharing(snapshot, held, self.most):
            rows = held.rows[group]
            self._check_memory(snapshot, rows)
            order = sorted(range(len(group)), key=lambda place: jobs.name[int(rows[place])])  # one entry of the cache
            found[np.array(group)[order]] = self._kept(snapshot, rows[order])
        return found * self._beside_others(snapshot, held) if self.node_loss else found

    def _beside_others(self, snapshot: Snapshot, held: Assignments) -> Floats:
        """What each job of held.rows keeps beside jobs on other GPUs of its nodes. (R,)."""
        names, found = snapshot.jobs.name, np.ones(len(held.rows))
        on_node: dict[int, list[tuple[int, int, str]]] = {}
        for job, (row, place) in enumerate(zip(held.rows.tolist(), places(held), strict=True)):
            for node, mask in zip(*place, strict=True):
                on_node.setdefault(node, []).append((job, mask, names[row]))
        for jobs in on_node.values():
            for job, mask, name in jobs:
                kept = [kept_beside(self._speeds, name, other, self.node_loss)
                        for _, taken, other in jobs if not taken & mask]  # fmt: skip
                found[job] = min(found[job], math.prod(kept))
        return found

    def _kept(self, snapshot: Snapshot, rows: Int64s) -> Sequence[float]:
        """What each job of these rows keeps of its speed."""
        jobs, gpus = snapshot.jobs, int(snapshot.jobs.gpus[rows[0]])
        names = [jobs.name[row] for row in rows.tolist()]
        guests = [parse_hints(jobs.comment[row]).share is True for row in rows.tolist()]
        if not self.guaranteed or sum(guests) != len(rows) - 1:
            return self._speeds.kept(names, gpus).kept
        use = [gpu_share(self.stages, name, gpus) for name in names]
        idle = 1.0 - use[guests.index(False)]
        return [max(min(idle / max(share, LEAST) / sum(guests), 1.0), LEAST) if is_guest else 1.0
                for share, is_guest in zip(use, guests, strict=True)]  # fmt: skip

    def _check_memory(self, snapshot: Snapshot, rows: Int64s) -> None:
        """Raises InputError where the jobs of these rows need more memory than a GPU has."""
        comments = [snapshot.jobs.comment[row] for row in rows.tolist()]
        needed = sum(parse_hints(comment).gpu_mem or 0.0 for comment in comments)
        if self.memory_gib and needed > self.memory_gib:
            jobs = ", ".join(map(str, sorted(snapshot.jobs.job_id[rows].tolist())))
            raise InputError(f"{pluralize(len(rows), 'job')} on one GPU ({jobs}) need {needed:g} GiB of its memory, it "
                             f"has {self.memory_gib:g}; let them not share")  # fmt: skip
