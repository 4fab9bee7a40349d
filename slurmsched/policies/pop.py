"""POP: any policy on several small clusters, each with a part of the jobs and of every kind of GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from slurmsched.allocation.heterogeneity import gpu_type
from slurmsched.model import JobChanges, Labels, PolicyFamily, PolicyInfo, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import Count, Range, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION, criteria_words
from slurmsched.policies.gavel import Gavel
from slurmsched.protocols import ChangingPolicy, Policy, is_preemptive
from slurmsched.resources.allocated import holding
from slurmsched.resources.startable_jobs import startable

KEY = "parts"  # in a carry
_MIX = np.uint64(0x9E3779B97F4A7C15)  # Knuth's multiplier, for lots drawn by job id


@dataclass(frozen=True, slots=True)
class Pop:
    """Splits jobs at random into k parts and GPUs into k equal parts. The policy ranks each part by itself.

    A job stays in its part.
    of: the policy, or its name.
    k: parts, a power of 2; fewer if the largest gang would not fit into a part.
    most_jobs: more parts, so that a part has about this many jobs at most; 0: k decides.
    Raises ConfigError for a parameter out of range.
    Source: Narayanan et al. (POP), SOSP '21. Ours: parts by job id, whole gangs in one part, merging the orders by the
    GPUs assigned so far.
    """

    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.HETEROGENEITY,
        "Narayanan et al.: POP, SOSP 2021",
        packages=("scipy",),
        left_out=(
            "Copies of a very large job in several parts, each with a share of its demand: a gang is in one part.",
        ),
        uses=(PolicyLever.ORDER, PolicyLever.GPU_TYPE, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(NEEDS_PREEMPTION, "Inputs and levers are those of the policy that is split."),
    )

    of: Policy = field(default_factory=Gavel)
    k: Count = 8
    most_jobs: Annotated[int, Range(0, 1_000_000, whole=True)] = 0

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def preemptive(self) -> bool:
        return is_preemptive(self.of)

    def rank(self, snapshot: Snapshot) -> Ranking:
        parts = self._parts(snapshot)
        made = [self.of.rank(part) for _, part in parts]
        if len(parts) == 1:
            return replace(made[0], carry={KEY: {"0": dict(made[0].carry)}}, words=criteria_words(self.of))
        place = np.empty(len(snapshot.jobs))
        for (rows, part), ranking in zip(parts, made, strict=True):
            gpus = part.jobs.gpus[ranking.order].astype(np.float64)
            place[rows[ranking.order]] = np.cumsum(gpus) - gpus
        inner = np.empty(len(snapshot.jobs), np.int64)
        for (rows, _), ranking in zip(parts, made, strict=True):
            inner[rows[ranking.order]] = np.arange(len(rows))
        carry = {KEY: {str(number): dict(ranking.carry) for number, ranking in enumerate(made)}}
        notes = tuple(dict.fromkeys(note for ranking in made for note in ranking.notes))
        rows_of = [rows for rows, _ in parts]
        why, words = _why(rows_of, made), criteria_words(self.of)
        return Ranking(ordered(snapshot.jobs, place, inner), why, carry, notes, _changes(rows_of, made), words)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When the order of a part changes by itself, the earliest of all parts [Unix s]."""
        if not isinstance(self.of, ChangingPolicy):
            return math.inf
        parts = self._parts(snapshot)
        if len(parts) == 1:
            return self.of.next_change_s(parts[0][1], replace(ranking, carry=ranking.carry[KEY]["0"]), running)
        place, found = np.argsort(ranking.order), math.inf
        for number, (rows, part) in enumerate(parts):
            why = {name: np.asarray(values)[rows] for name, values in ranking.why.items()}
            own = Ranking(np.argsort(place[rows]), why=why, carry=ranking.carry[KEY].get(str(number), {}))
            found = min(found, self.of.next_change_s(part, own, running[rows]))
        return found

    def _parts(self, snapshot: Snapshot) -> list[tuple[Int64s, Snapshot]]:
        """Rows and snapshot of each part, as many as there are to be."""
        count = self._count(snapshot)
        carried = snapshot.carry.get(KEY)
        carries: Mapping[str, Any] = carried if isinstance(carried, Mapping) else {}
        lot = _part_of_job(snapshot, count)
        dealt = _dealt(snapshot, count)
        return [
            (rows, _part(snapshot, rows, dealt[number], carries.get(str(number), {})))
            for number, rows in enumerate(np.flatnonzero(lot == number) for number in range(count))
        ]

    def _count(self, snapshot: Snapshot) -> int:
        """Number of parts, a power of 2."""
        active = holding(snapshot.jobs) | startable(snapshot)
        wanted = self.k
        if self.most_jobs:
            wanted = max(wanted, math.ceil(int(active.sum()) / self.most_jobs))
        largest = int(snapshot.jobs.gpus.max(initial=1, where=active))
        total = int(snapshot.nodes.gpus[~snapshot.nodes.closed].sum())
        most = max(total // max(largest, 1), 1)
        parts = 1 << max(wanted - 1, 0).bit_length()
        return min(parts, 1 << (most.bit_length() - 1))


def _part_of_job(snapshot: Snapshot, count: int) -> Int64s:
    """The part of each job, drawn by seed and job id. (N,) int64."""
    mixed = (snapshot.jobs.job_id.astype(np.uint64) + np.uint64(snapshot.seed)) * _MIX
    return ((mixed >> np.uint64(33)) % np.uint64(count)).astype(np.int64)


def _dealt(snapshot: Snapshot, count: int) -> Int64s:
    """GPUs of each node in each part, one GPU type after the other in equal runs. (count, nodes) int64."""
    nodes, dealt = snapshot.nodes, np.zeros((count, len(snapshot.nodes)), np.int64)
    types = np.array([gpu_type(text) for text in nodes.gpu_types])
    for each in sorted(set(types.tolist())):
        rows = np.flatnonzero((types == each) & ~nodes.closed)
        ends = np.cumsum(nodes.gpus[rows])
        total = int(ends[-1]) if len(ends) else 0
        for part in range(count):
            low, high = part * total // count, (part + 1) * total // count
            dealt[part, rows] = np.clip(np.minimum(ends, high) - np.maximum(ends - nodes.gpus[rows], low), 0, None)
    return dealt


def _part(snapshot: Snapshot, rows: Int64s, gpus: Int64s, carry: Mapping[str, Any]) -> Snapshot:
    """The snapshot of these jobs, and of these GPUs of each node, without nodes that have none."""
    jobs, here = snapshot.jobs.take(rows), gpus > 0
    nodes = snapshot.nodes.take(here)
    nodes = nodes.with_columns(gpus=gpus[here].astype(np.int32),
                               gpus_used=np.minimum(nodes.gpus_used, gpus[here]).astype(np.int32))  # fmt: skip
    allocations = snapshot.allocations
    return replace(snapshot, jobs=jobs, nodes=nodes, carry=carry,
                   allocations=allocations.take(np.isin(allocations.job_id, jobs.job_id)))  # fmt: skip


def _why(rows_of: Sequence[Int64s], made: Sequence[Ranking]) -> dict[str, Any]:
    """The criteria of all parts by row of the whole, and the part of each job."""
    count = sum(len(rows) for rows in rows_of)
    found: dict[str, Any] = {"part": np.zeros(count, np.int64)}
    for number, (rows, ranking) in enumerate(zip(rows_of, made, strict=True)):
        found["part"][rows] = number
        for name, values in ranking.why.items():
            found.setdefault(name, np.zeros(count, np.asarray(values).dtype))[rows] = values
    return found


def _changes(rows_of: Sequence[Int64s], made: Sequence[Ranking]) -> JobChanges | None:
    """The changes of all parts, by row of the whole; None if there are none."""
    count = sum(len(rows) for rows in rows_of)
    given: dict[str, Any] = {}
    for rows, ranking in zip(rows_of, made, strict=True):
        for name, values in ({} if ranking.changes is None else ranking.changes.columns).items():
            if isinstance(values, Labels):
                column = given.setdefault(name, [""] * count)
                for row, text in zip(rows.tolist(), values, strict=True):
                    column[row] = text
                continue
            default: Floats = np.full(count, {"start_s": -np.inf, "beside": -1.0}.get(name, 0.0))
            given.setdefault(name, default.astype(np.asarray(values).dtype))[rows] = values
    columns: dict[str, Any] = {
        name: Labels.of(column) if isinstance(column, list) else column for name, column in given.items()
    }
    return JobChanges(**columns) if columns else None
