"""Nodes of a service lent to jobs and taken back at the least cost; spare GPUs where they save most time: Lyra."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np

from slurmsched.allocation.elastic import best_sizes, sizes_of, thinned, without_curve
from slurmsched.allocation.job_memory import recall, remembered
from slurmsched.allocation.job_times import active, cluster_gpus, remaining_or_unknown_s
from slurmsched.allocation.size_rounds import (
    SizeRound,
    elastic_jobs,
    fixed_sizes,
    gpus_now,
    size_ranking,
    too_large,
    unstoppable,
)
from slurmsched.estimators.requested_time import Hint
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import hint_column
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import Count, Part, Period, Range, check_ranges, check_words
from slurmsched.model.policy_info import NEEDS_PREEMPTION, RESIZE_BY_REQUEUE
from slurmsched.plain_text import pluralize
from slurmsched.protocols import Estimator, SpeedEstimator
from slurmsched.resources.allocated import AllocatedGpus, holding, nodes_serving
from slurmsched.resources.eligibility import node_pools
from slurmsched.resources.startable_jobs import not_waiting_for_gpus

LEAVES = "lyra_leaves"  # in a carry, by job


@dataclass(frozen=True, slots=True)
class Lyra:
    """Running jobs go on, then the shortest waiting jobs get their least size, then spare GPUs save the most run time.

    Nodes in a partition of `lenders` are lent: jobs of other partitions may use them while jobs of the lenders do not
    need them. If those wait for GPUs, nodes are taken back one by one. The next is the node with the least preemption
    cost: the sum of the shares that it has of the nodes of each job that must be stopped. An elastic job that can do
    without its GPUs there shrinks, at no cost. A node with a job of the hint preempt=no is not taken back, and such a
    job does not change its size. Nothing is taken back for a job that would still not fit.
    lenders: partitions whose nodes are lent and whose jobs go first; none: nothing is lent.
    spare_gpus: GPUs of lent nodes that stay free for the lenders.
    interval_s: time between two changes of sizes [s]. A job of a lender begins a new one at once.
    most_jobs: most elastic jobs of one choice of sizes, running ones and then the shortest first.
    serial: share of a job's work that more GPUs do not speed up (Amdahl's law).
    speeds: a table of throughputs by number of GPUs replaces Amdahl's law.
    estimator: source of expected run times, at the size that a job asks for.
    Raises ConfigError for a parameter out of range.
    Source: Li et al. (Lyra), EuroSys '23, for the preemption cost of a node, and both phases of sizes: least sizes by
    shortest job, then a multiple-choice knapsack of saved run time. Ours: the lenders' waiting jobs say how much is
    taken back; jobs without an expected run time count as one hour from their end.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.ELASTIC,
        "Li et al.: Lyra, EuroSys 2023",
        left_out=(
            "The forecast of the service's load: waiting jobs of the lenders and `spare_gpus` say what is taken back.",
            "Elastic jobs on lent nodes first: the placement chooses nodes.",
            "GPU types: a lent GPU counts as any other.",
        ),
        needs=(PolicyInput.DURATION, PolicyInput.SIZES, PolicyInput.SPEED, PolicyInput.PROGRESS),
        uses=(PolicyLever.ORDER, PolicyLever.SIZE, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(
            NEEDS_PREEMPTION,
            RESIZE_BY_REQUEUE,
            "Nodes do not change their partition. A lent node is in a partition of the lender and in one of the "
            "borrowers. A job that must not be on lent nodes uses a partition without them.",
        ),
        criteria={"given_gpus": "given {} GPUs", "leaves": "leaves lent nodes to their lender"},
    )

    lenders: tuple[str, ...] = ()
    spare_gpus: Annotated[int, Range(0, 1_000_000, whole=True)] = 0
    interval_s: Period = 300.0
    most_jobs: Count = 300
    serial: Part = 0.02
    speeds: SpeedEstimator = field(default_factory=EqualSpeeds)
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)
        check_words("lenders", self.lenders)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, who, before = snapshot.jobs, active(snapshot), SizeRound.of(snapshot, "lyra")
        lends = who & _of_partitions(snapshot, self.lenders)
        leaves = np.nan_to_num(recall(jobs, snapshot.carry, (LEAVES,))[LEAVES]) > 0
        remaining_s = remaining_or_unknown_s(self.estimator, snapshot)
        if before.over(snapshot) or (lends & (before.given == 0)).any():
            stays, promised = self._after_return(snapshot, who, lends)
            given = self._given(snapshot, who, lends, stays, promised, remaining_s)
            before, leaves = before.begun(snapshot, given, self.interval_s), holding(jobs) & who & (stays == 0)
        runs = holding(jobs) & who
        late = np.select([leaves, runs, lends, before.given > 0], [4, 0, 1, 2], 3)
        notes = without_curve(snapshot, who, self.speeds) + _returned_note(leaves & runs)
        ranking = size_ranking(snapshot, ordered(jobs, late, remaining_s), before, notes)
        carry = {**ranking.carry, **dict(remembered(jobs, {LEAVES: leaves.astype(np.float64)}))}
        return replace(ranking, carry=carry, why={**ranking.why, "leaves": leaves & runs})

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When sizes may change next [Unix s]; infinity if there are no jobs."""
        return SizeRound.next_s(snapshot, ranking, "lyra")

    def _after_return(self, snapshot: Snapshot, who: Bools, lends: Bools) -> tuple[Int64s, int]:
        """GPUs of each running job when the lenders have what they need, 0 of one that must leave; and the free GPUs
        that wait for the lenders then. (N,)."""
        jobs, nodes, allocated, now = snapshot.jobs, snapshot.nodes, AllocatedGpus.of(snapshot), gpus_now(snapshot)
        lent = _nodes_of(snapshot, self.lenders) & ~nodes.closed
        if not lent.any():
            return now, 0
        runs, borrowers = np.flatnonzero(now > 0), np.flatnonzero((now > 0) & who & ~lends)
        capacity = nodes.gpus.astype(np.int64)
        table, used = allocated.table(borrowers, capacity), allocated.table(runs, capacity).sum(axis=0)
        free = np.where(nodes.closed, 0, np.maximum(capacity - np.maximum(used, nodes.gpus_used), 0)).astype(np.int64)
        least = np.where(elastic_jobs(snapshot) & ~unstoppable(snapshot), hint_column(jobs, "min_gpus"), now)
        after = now.copy()
        after[borrowers], promised = taken_back(
            table,
            now[borrowers],
            (table > 0).sum(axis=1),
            least[borrowers].astype(np.int64),
            ~unstoppable(snapshot)[borrowers],
            lent,
            free,
            self._needs(snapshot, lends, lent),
        )
        return after, promised

    def _needs(self, snapshot: Snapshot, lends: Bools, lent: Bools) -> list[LenderNeed]:
        """What the lenders' jobs need that wait for GPUs, the largest first; then the spare GPUs. lent: (M,)."""
        jobs = snapshot.jobs
        rows = np.flatnonzero(lends & jobs.pending & ~not_waiting_for_gpus(jobs) & ~too_large(snapshot))
        rows = rows[np.lexsort((jobs.job_id[rows], -jobs.gpus[rows]))]
        pool, usable = node_pools(snapshot, rows) if len(rows) else (rows, lent[None])
        needs = [LenderNeed(_by_node(int(jobs.gpus[row]), int(jobs.nodes[row])), usable[at]) for row, at in
                 zip(rows.tolist(), pool.tolist(), strict=True)]  # fmt: skip
        return needs + [LenderNeed([1], lent)] * self.spare_gpus

    def _given(
        self, snapshot: Snapshot, who: Bools, lends: Bools, stays: Int64s, promised: int, remaining_s: Floats
    ) -> Int64s:
        """GPUs of each job from now on. stays: (N,), promised: as _after_return has them. (N,)."""
        jobs, runs, fixed = snapshot.jobs, stays > 0, unstoppable(snapshot)
        given = np.where(lends, np.where(fixed, stays, jobs.gpus), 0).astype(np.int64)
        free = max(cluster_gpus(snapshot) - int(stays[lends].sum()) - promised, 0)
        rows = ordered(jobs, ~fixed, ~runs, remaining_s)
        rows = rows[(who & ~lends & ~(holding(jobs) & ~runs))[rows]]
        sizes = fixed_sizes(snapshot, rows, sizes_of(snapshot, rows.tolist(), self.serial, self.speeds, max(free, 1)))
        chosen = list[int]()
        for place, (row, each) in enumerate(zip(rows.tolist(), sizes, strict=True)):
            if each.gpus[0] <= free:
                given[row], free = each.gpus[0], free - int(each.gpus[0])
                chosen += [place] if len(each.gpus) > 1 else []
        options = [thinned(sizes[place]) for place in chosen[: self.most_jobs]]
        grows = rows[chosen[: self.most_jobs]]
        saved_s = [remaining_s[row] * (1 / each.speed - 1 / each.speed[0]) for row, each in
                   zip(grows.tolist(), options, strict=True)]  # fmt: skip
        given[grows] += best_sizes([each.gpus - each.gpus[0] for each in options], saved_s, free)
        return given


@dataclass(frozen=True, slots=True, eq=False)
class LenderNeed:
    """GPUs that a lender waits for. parts: on each of its nodes. nodes: (M,) those that it may use."""

    parts: Sequence[int]
    nodes: Bools


# Over 30 lines: one state of borrowers and nodes, which a need changes as a whole or not at all.
def taken_back(
    table: Int64s,
    has: Int64s,
    spans: Int64s,
    least: Int64s,
    stops: Bools,
    lent: Bools,
    free: Int64s,
    needs: Sequence[LenderNeed],
) -> tuple[Int64s, int]:
    """GPUs that each borrower has when the lenders have what they need, 0 of one that must leave (B,); and the GPUs of
    the needs that fit then.

    table: (B, M) GPUs that it holds on each node.
    has: (B,) on all nodes.
    spans: (B,) nodes that it is on.
    least: (B,) GPUs that it can do with; has, or more, of a job of one size.
    stops: (B,) whether it may be stopped.
    lent: (M,).
    free: (M,) GPUs of each node.
    Nodes are taken back while a need does not fit, those of the least preemption cost first. Of equals it is that on
    which borrowers hold fewer GPUs, then the first. For a need that does not fit in the end, no node is taken back.
    Source: Li et al. (Lyra), EuroSys '23, section on reclaiming servers: greedy, by server preemption cost.
    """
    promised = 0
    for need in needs:
        before = table, has, spans, free
        table, has, spans, free = table.copy(), has.copy(), spans.copy(), free.copy()
        while not (fits := _placed(free, need)):
            here = table > 0
            shrinks = has[:, None] - table >= least[:, None]
            open_ = lent & need.nodes & here.any(axis=0) & ~(here & ~shrinks & ~stops[:, None]).any(axis=0)
            if not open_.any():
                break
            cost = np.where(here & ~shrinks, 1.0 / np.maximum(spans, 1)[:, None], 0.0).sum(axis=0)
            node = int(np.lexsort((table.sum(axis=0), cost.round(9), ~open_))[0])
            stopped = here[:, node] & ~shrinks[:, node]
            has = np.where(stopped, 0, has - table[:, node])
            spans = np.where(stopped, 0, spans - here[:, node])
            free += table[stopped].sum(axis=0)
            free[node] += table[~stopped, node].sum()
            table[stopped] = 0
            table[:, node] = 0
        if fits:
            promised += sum(need.parts)
        else:
            table, has, spans, free = before
    return has, promised


def _placed(free: Int64s, need: LenderNeed) -> bool:
    """Whether the parts of a need fit on nodes of their own; then they are taken from what is free."""
    order = np.argsort(free, kind="stable")
    order = order[need.nodes[order]]
    at = 0
    nodes = list[int]()
    for gpus in sorted(need.parts):
        while at < len(order) and free[order[at]] < gpus:
            at += 1
        if at == len(order):
            return False
        nodes.append(int(order[at]))
        at += 1
    free[nodes] -= np.sort(np.asarray(need.parts, np.int64))
    return True


def _by_node(gpus: int, nodes: int) -> list[int]:
    """GPUs on each node of a job that asks for that many nodes."""
    nodes = max(min(nodes, gpus), 1)
    return [gpus // nodes + (place < gpus % nodes) for place in range(nodes)]


def _of_partitions(snapshot: Snapshot, names: tuple[str, ...]) -> Bools:
    """Jobs that ask for one of these partitions. (N,)."""
    wanted = set(names)
    return snapshot.jobs.partition.map(lambda text: not wanted.isdisjoint(text.split(",")), np.bool_)


def _nodes_of(snapshot: Snapshot, names: tuple[str, ...]) -> Bools:
    """Nodes in one of these partitions. (M,)."""
    found = np.zeros(len(snapshot.nodes), np.bool_)
    for name in names:
        found |= nodes_serving(snapshot.nodes.partitions, name)
    return found


def _returned_note(leaves: Bools) -> tuple[str, ...]:
    count = pluralize(int(leaves.sum()), "running job leaves lent nodes", "running jobs leave lent nodes")
    return (f"{count} to their lender",) if leaves.any() else ()
