"""Sizes of jobs that stand for a while: rounds of elastic policies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from slurmsched.allocation.elastic import JobSizes
from slurmsched.allocation.job_memory import ORIGIN, origin_s, recall, remembered
from slurmsched.allocation.job_times import active
from slurmsched.model import JobChanges, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import hint_column
from slurmsched.plain_text import pluralize
from slurmsched.resources.allocated import AllocatedGpus
from slurmsched.resources.eligibility import node_pools

_GIVEN, _MOST, _CHANGES = "given_gpus", "most_gpus", "changes"  # in a carry, by job


@dataclass(frozen=True, slots=True, eq=False)
class SizeRound:
    """GPUs of each job until the next round.

    policy: whose round.
    given: (N,) GPUs, 0 = none.
    most: (N,) most GPUs that each ever had.
    changes: (N,) how often each got other GPUs after its first ones.
    ends_s: when the next round begins [Unix s], -infinity if there was none.
    """

    policy: str
    given: Int64s
    most: Int64s
    changes: Int64s
    ends_s: float

    @classmethod
    def of(cls, snapshot: Snapshot, policy: str) -> Self:
        """The round that the carry of a snapshot tells of; jobs that came since have nothing."""
        known = recall(snapshot.jobs, snapshot.carry, (_GIVEN, _MOST, _CHANGES))
        given, most, changes = (np.nan_to_num(known[name]).astype(np.int64) for name in (_GIVEN, _MOST, _CHANGES))
        return cls(policy, np.where(active(snapshot), given, 0), most, changes, cls.end_s(snapshot.carry, policy))

    @staticmethod
    def end_s(carry: Mapping[str, Any], policy: str) -> float:
        """When the round of a carry ends [Unix s], -infinity without one."""
        carried = carry.get(f"{policy}_round")
        return float(carried["ends_s"]) if isinstance(carried, dict) and "ends_s" in carried else -math.inf

    @classmethod
    def next_s(cls, snapshot: Snapshot, ranking: Ranking, policy: str) -> float:
        """When sizes may change next [Unix s]: the end of the round; infinity if no job is active."""
        return cls.end_s(ranking.carry, policy) if active(snapshot).any() else math.inf

    def over(self, snapshot: Snapshot) -> bool:
        """Whether the next round begins now: it is time, or elastic jobs wait and nobody has GPUs."""
        return snapshot.now_s >= self.ends_s or all_wait(snapshot, self.given)

    def begun(self, snapshot: Snapshot, given: Int64s, length_s: float, moved: Bools | None = None) -> SizeRound:
        """The round that begins now. given: (N,). moved: (N,) whether a job goes to other GPUs, however many."""
        other = given != self.given if moved is None else moved | (given != self.given)
        changes = self.changes + (other & (given > 0) & (self.most > 0))
        return SizeRound(self.policy, given, np.maximum(self.most, given), changes, snapshot.now_s + length_s)

    def carry(self, snapshot: Snapshot) -> dict[str, Any]:
        """What the next cycle needs."""
        named = ((_GIVEN, self.given), (_MOST, self.most), (_CHANGES, self.changes))
        columns: dict[str, Floats] = {name: column.astype(np.float64) for name, column in named}
        rounds = {f"{self.policy}_round": {"ends_s": self.ends_s}, ORIGIN: origin_s(snapshot)}
        return dict(remembered(snapshot.jobs, columns)) | rounds


def gpus_now(snapshot: Snapshot) -> Int64s:
    """GPUs that each job holds, 0 = none. (N,)."""
    allocated = AllocatedGpus.of(snapshot)
    sums = np.concatenate([[0], np.cumsum(allocated.gpus)])
    return np.asarray(sums[allocated.first + allocated.count] - sums[allocated.first])


def elastic_jobs(snapshot: Snapshot) -> Bools:
    """Active jobs that may have several sizes. (N,) bool."""
    jobs = snapshot.jobs
    return np.asarray(active(snapshot) & (hint_column(jobs, "min_gpus") <= hint_column(jobs, "max_gpus")))


def unstoppable(snapshot: Snapshot) -> Bools:
    """Running jobs that must not be stopped, by the hint preempt=no: they hold what they hold. (N,) bool."""
    return np.asarray((gpus_now(snapshot) > 0) & (hint_column(snapshot.jobs, "preempt") == 0))


def fixed_sizes(snapshot: Snapshot, rows: Int64s, sizes: Sequence[JobSizes]) -> list[JobSizes]:
    """The sizes of these jobs, but of those that must not be stopped only the one that each holds. rows: (J,)."""
    fixed, now = unstoppable(snapshot)[rows].tolist(), gpus_now(snapshot)[rows].tolist()
    return [JobSizes(np.array([gpus]), np.interp([gpus], each.gpus, each.speed)) if stands else each
            for each, stands, gpus in zip(sizes, fixed, now, strict=True)]  # fmt: skip


def too_large(snapshot: Snapshot) -> Bools:
    """Waiting jobs whose least size is more GPUs than all open nodes have that they may use. (N,) bool."""
    jobs, nodes = snapshot.jobs, snapshot.nodes
    least = np.where(elastic_jobs(snapshot), hint_column(jobs, "min_gpus"), jobs.gpus)
    pool, usable = node_pools(snapshot)
    room = usable @ np.where(nodes.closed, 0, nodes.gpus).astype(np.int64)
    return np.asarray(active(snapshot) & jobs.pending & (least > room[pool]))


def too_large_note(large: Bools) -> tuple[str, ...]:
    """What is said of such jobs. large: (N,)."""
    count = pluralize(int(large.sum()), "job needs", "jobs need")
    return (f"{count} more GPUs than the usable nodes have: given none",) if large.any() else ()


def all_wait(snapshot: Snapshot, given: Int64s | Floats) -> bool:
    """Whether no active job is given GPUs though one is elastic. given: (N,)."""
    return bool(elastic_jobs(snapshot).any()) and not (active(snapshot) & (given > 0)).any()


def size_ranking(snapshot: Snapshot, order: Int64s, sizes: SizeRound, notes: tuple[str, ...] = ()) -> Ranking:
    """The ranking of jobs that have these sizes. order: (N,)."""
    wanted = size_changes(snapshot, sizes.given, sizes.ends_s)
    return Ranking(order, why={"given_gpus": sizes.given}, carry=sizes.carry(snapshot), notes=notes, changes=wanted)


def size_changes(snapshot: Snapshot, given: Int64s, ends_s: float) -> JobChanges | None:
    """What to want of jobs that have these sizes until then [Unix s]; None if no active job is elastic. given: (N,).

    A size is named also where the job asks for it, since it may hold another one. An elastic job that is given none
    does not start before the next round. If it runs, it may keep what it holds, as long as that is left.
    """
    jobs, elastic = snapshot.jobs, elastic_jobs(snapshot)
    if not elastic.any():
        return None
    gpus = np.where((given > 0) | ~elastic, given, gpus_now(snapshot)).astype(np.int32)
    waits = elastic & jobs.pending & (given == 0)
    return JobChanges(gpus=gpus, start_s=np.where(waits, ends_s, -np.inf) if waits.any() else None)
