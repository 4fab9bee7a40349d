"""Which jobs may be preempted, and the cheapest set of them for one job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from slurmsched.config import PreemptionConfig, ScopeConfig
from slurmsched.model import Jobs, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import Hints, hint_column, parse_hints
from slurmsched.planning import job_scope
from slurmsched.resources.allocated import AllocatedGpus, holding
from slurmsched.resources.free import FreeResources, JobRequirements, share_on_node
from slurmsched.resources.topology_limits import node_sets_for_one_job, topology_for_job


@dataclass(frozen=True, slots=True)
class PreemptionCase:
    """The input of the rules. hints: of each distinct comment, by its code."""

    snapshot: Snapshot
    config: PreemptionConfig
    scope: ScopeConfig
    hints: tuple[Hints, ...]

    @property
    def jobs(self) -> Jobs:
        """The rows that all (N,) arrays of the rules follow."""
        return self.snapshot.jobs

    def hinted(self, value: Callable[[Hints], float]) -> Floats:
        """value of each job's hints. (N,) float64."""
        table = np.array([value(hints) for hints in self.hints] or [0.0], np.float64)
        return table[self.jobs.comment.codes]


@dataclass(frozen=True, slots=True)
class VictimRule:
    """One reason to leave a running job its GPUs.

    reason: in words; {most_per_job} is that limit.
    hard: it counts after the job was chosen, too.
    """

    name: str
    reason: str
    catches: Callable[[PreemptionCase], Bools]
    hard: bool = False

    def text(self, config: PreemptionConfig) -> str:
        """The reason under these limits."""
        return self.reason.format(most_per_job=config.most_per_job)


def restart_costs_s(jobs: Jobs, default_s: float) -> Floats:
    """Time that a restart costs each job, run time without progress [s]. (N,).

    It is the job's hint, else what moves of its user's jobs of its name have cost, else the default.
    """
    hinted = hint_column(jobs, "restart_s")
    return np.where(np.isnan(hinted), np.where(np.isnan(jobs.moved_cost_s), default_s, jobs.moved_cost_s), hinted)


def restart_cost_source(jobs: Jobs, row: int) -> str:
    """By what the cost of restarting one job is known, as text."""
    if parse_hints(jobs.comment[row]).restart_s is not None:
        return "its hint"
    if np.isnan(jobs.moved_cost_s[row]):
        return "preemption.restart_cost_s"
    return f"the median of {int(jobs.moves_seen[row])} moves of its user's jobs of its name"


def realloc_factor(case: PreemptionCase) -> Floats:
    """Share of a job's age that was progress if it is moved once more: (T - R d) / (T + d), at least 0. (N,) float64.

    T: age since first submitted [s]. R: moves so far. d: cost of one [s].
    Source: Qiao et al. (Pollux), OSDI '21, section 4.2.1.
    """
    jobs, cost = case.jobs, restart_costs_s(case.jobs, case.config.restart_cost_s)
    first_s = np.where(np.isfinite(jobs.first_submit_s), jobs.first_submit_s, jobs.submit_s)
    age_s = np.maximum(np.nan_to_num(case.snapshot.now_s - first_s), 0.0)
    return np.maximum((age_s - jobs.restarts * cost) / np.maximum(age_s + cost, 1e-9), 0.0)


def _willing(case: PreemptionCase) -> Bools:
    """By its own hint, or by partition, account or QOS where the job does not say no. (N,) bool."""
    jobs, config = case.jobs, case.config
    said = case.hinted(lambda hints: {True: 1.0, False: -1.0}.get(hints.preempt, 0.0))  # type: ignore[arg-type]
    named = jobs.qos.isin(config.qos) | jobs.account.isin(config.accounts)
    named |= jobs.partition.map(lambda listed: not set(listed.split(",")).isdisjoint(config.partitions), np.bool_)
    return (said > 0) | (named & (said == 0))


def _would_lose_all(case: PreemptionCase) -> Bools:
    asks = case.hinted(lambda hints: 0.0 if hints.ckpt is None else 1.0) > 0
    return ~asks & (not case.config.without_checkpoint)


def _run_on_s(case: PreemptionCase) -> Floats:
    """How long each job runs on: up to its limit, or its dur hint while it has not outlived that [s]. (N,)."""
    limit_s = np.nan_to_num(case.jobs.end_s - case.snapshot.now_s, nan=np.inf)
    hinted_s = case.hinted(lambda hints: np.inf if hints.dur_s is None else hints.dur_s) - case.jobs.executed_s
    return np.where(hinted_s > 0, np.minimum(limit_s, hinted_s), limit_s)


def _ends_soon(case: PreemptionCase) -> Bools:
    grace_s = case.hinted(lambda hints: 0.0 if hints.ckpt is None else hints.ckpt.lead_s)
    cost_s = restart_costs_s(case.jobs, case.config.restart_cost_s)
    return _run_on_s(case) <= cost_s + np.minimum(grace_s, case.config.grace_s)


def _in_operation(case: PreemptionCase) -> Bools:
    busy = {victim.job_id for operation in case.snapshot.operations for victim in operation.victims}
    busy |= {operation.job_id for operation in case.snapshot.operations}
    return np.isin(case.jobs.job_id, sorted(busy))


# The first rule that catches a job is its reason.
VICTIM_RULES = (
    VictimRule("not-running", "it does not run", lambda case: ~holding(case.jobs)),
    VictimRule("scope", "it is not in scope", lambda case: ~job_scope.scoped(case.jobs, case.scope), hard=True),
    VictimRule("no-gpu", "Slurm shows no GPU held by it", lambda case: AllocatedGpus.of(case.snapshot).count == 0),
    VictimRule("batch", "only batch jobs can be requeued", lambda case: ~case.jobs.batch, hard=True),
    VictimRule("cron", "a scrontab job is not requeued", lambda case: case.jobs.cron, hard=True),
    VictimRule("het", "a het job goes as a whole or not at all", lambda case: case.jobs.het_job_id > 0, hard=True),
    VictimRule(
        "array",
        "Slurm takes its id for its whole array, so that all tasks would be requeued",
        lambda case: job_scope.has_id_of_array(case.jobs),
        hard=True,
    ),
    VictimRule("no-requeue", "it was submitted with --no-requeue", lambda case: ~case.jobs.requeueable, hard=True),
    VictimRule("operation", "another preemption with it is under way", _in_operation),
    VictimRule(
        "unwilling",
        "neither its hint (preempt=yes) nor the site lets it be preempted",
        lambda c: ~_willing(c),
        hard=True,
    ),
    VictimRule("checkpoint", "it has no ckpt hint, and the site requeues none without", _would_lose_all),
    VictimRule("quantum", "it has not had its quantum yet", lambda case: case.jobs.run_s < case.config.quantum_s),
    VictimRule(
        "times",
        "it was requeued {most_per_job} times or more (preemption.most_per_job)",
        lambda case: case.jobs.restarts >= case.config.most_per_job,
    ),
    VictimRule("ends", "it ends before moving it would pay", _ends_soon),
    VictimRule(
        "factor",
        "after a restart, less than preemption.least_factor of its age would be work",
        lambda case: realloc_factor(case) < case.config.least_factor,
    ),
)


def preemption_case(snapshot: Snapshot, config: PreemptionConfig, scope: ScopeConfig) -> PreemptionCase:
    """The case of all jobs of the snapshot; the hints of each distinct comment are parsed once."""
    return PreemptionCase(snapshot, config, scope, tuple(parse_hints(name) for name in snapshot.jobs.comment.names))


def hard_reason(case: PreemptionCase) -> str:
    """The hard reason to leave the case's first job its GPUs, as text; "" if there is none."""
    return next((rule.reason for rule in VICTIM_RULES if rule.hard and rule.catches(case)[0]), "")


def protected_by_lease(snapshot: Snapshot, job_id: int, lease_s: float) -> frozenset[int]:
    """Jobs that got GPUs of this job so lately that it must not take theirs."""
    since_s = snapshot.now_s - lease_s
    operations = (
        operation for operation in (*snapshot.past_operations, *snapshot.operations) if operation.begun_s > since_s
    )
    return frozenset(
        operation.job_id for operation in operations if any(victim.job_id == job_id for victim in operation.victims)
    )


def victim_verdicts(case: PreemptionCase) -> NDArray[np.int8]:
    """The rule that leaves each job its GPUs: index into VICTIM_RULES, -1 for a job that may lose them. (N,) int8."""
    verdict = np.full(len(case.jobs), -1, np.int8)
    for index, rule in enumerate(VICTIM_RULES):
        verdict[(verdict < 0) & rule.catches(case)] = index
    return verdict


# Which nodes are freed for a job, and which jobs are preempted there: the fewest GPU seconds lost in total.

_EXACT = 10  # victims of a node up to which every set of them is tried
_NOTHING = 1e-6  # of CPUs or MiB: shares of jobs on several nodes are no whole numbers

Amounts = tuple[int, float, float]
Price = tuple[float, int, list[int]]


@dataclass(frozen=True, slots=True, eq=False)
class PreemptableJobs:
    """Running jobs that may lose their GPUs. lost_gpu_s: (J,) work each would lose. allocated: GPUs by row and node."""

    may_lose: Bools
    lost_gpu_s: Floats
    place: Int64s
    allocated: AllocatedGpus

    def without(self, snapshot: Snapshot, job_ids: Iterable[int]) -> PreemptableJobs:
        """The same, but these jobs keep their GPUs."""
        kept = np.isin(snapshot.jobs.job_id, sorted(job_ids))
        return replace(self, may_lose=self.may_lose & ~kept) if kept.any() else self

    def price(self, rows: list[int]) -> Price:
        """What the preemption of these costs, as a tuple to be compared:

        - the GPU seconds of work lost;
        - how many are preempted;
        - their places in the policy's order: the most urgent one as late as can be, then the next.
        """
        return float(self.lost_gpu_s[rows].sum()), len(rows), sorted(-self.place[rows], reverse=True)

    def on(self, node: int) -> list[int]:
        """Rows of those that hold GPUs of this node, ascending."""
        nodes, rows = _by_node(self.allocated)
        here = slice(*np.searchsorted(nodes, (node, node + 1)).tolist())
        return [row for row in sorted(set(rows[here].tolist())) if self.may_lose[row]]

    def spread(self, nodes: Int64s, most: int) -> PreemptableJobs:
        """The same, but the work of a job is shared out over those of these nodes that its end would clear.

        most: nodes that it is shared out over at most.
        """
        here = np.isin(self.allocated.node, nodes)
        # A job has one row for each GPU type of a node; each node counts once.
        pairs = np.unique(np.stack((_rows_of_jobs(self.allocated)[here], self.allocated.node[here])), axis=1)
        among = np.bincount(pairs[0], minlength=len(self.allocated.count))
        return replace(self, lost_gpu_s=self.lost_gpu_s / np.clip(among, 1, most))


def _rows_of_jobs(allocated: AllocatedGpus) -> Int64s:
    """The job of each row of allocated."""
    return np.repeat(np.arange(len(allocated.count)), allocated.count)


@lru_cache(maxsize=2)  # all questions of a cycle are of one
def _by_node(allocated: AllocatedGpus) -> tuple[Int64s, Int64s]:
    """Nodes of the rows of allocated, ascending, and the job of each."""
    order = np.argsort(allocated.node, kind="stable")
    return allocated.node[order], _rows_of_jobs(allocated)[order]


@dataclass(frozen=True, slots=True, eq=False)
class VictimSearch:
    """The search for the jobs to preempt for one job. row: of that job."""

    snapshot: Snapshot
    row: int
    need: JobRequirements
    running: PreemptableJobs
    available: FreeResources

    def cheapest(self, allowed: Int64s) -> tuple[list[int], list[int]] | None:
        """The nodes of these that are cleared at the fewest lost GPU seconds, and who leaves; None if too few can be.

        Exact for one node. Of several it is the better of two searches, node after node:

        - by what each job would lose;
        - by that spread over the nodes it would clear, since a job of several nodes is lost but once.
        """
        ways = [self.running]
        if self.need.nodes > 1:
            ways.append(self.running.spread(allowed, self.need.nodes))
        found = [chosen for way in ways if (chosen := self._chosen(allowed, way)) is not None]
        return min(found, key=lambda chosen: self.running.price(chosen[1]), default=None)

    def _chosen(self, allowed: Int64s, way: PreemptableJobs) -> tuple[list[int], list[int]] | None:
        """Of every place where Slurm would start the job, the cheapest."""
        offers = {node: rows for node in allowed.tolist() if (rows := self._victims_on(node, (), way)) is not None}
        prices = {node: way.price(rows) for node, rows in offers.items()}
        order = np.array(sorted(offers, key=lambda node: (prices[node], node)), np.int64)
        sets = node_sets_for_one_job(topology_for_job(self.snapshot, self.row), order, self.need.nodes)
        found = (self._among({node: offers[node] for node in each.tolist()}, way) for each in sets)
        return min(found, key=lambda chosen: self.running.price(chosen[1]), default=None)

    def _among(self, offers: dict[int, list[int]], way: PreemptableJobs) -> tuple[list[int], list[int]]:
        """Take the cheapest node again and again, given the victims chosen so far. offers: the victims of each node."""
        nodes, leave = list[int](), list[int]()
        prices = {node: way.price(rows) for node, rows in offers.items()}
        while len(nodes) < self.need.nodes:
            node = min(offers, key=lambda each: (prices[each], each))
            rows = offers.pop(node)
            nodes.append(node)
            leave += rows
            for other in {each for row in rows for each in way.allocated.nodes(row)} & offers.keys():
                again = self._victims_on(other, leave, way)
                assert again is not None, "fewer leave than before"
                offers[other] = again
                prices[other] = way.price(offers[other])
        return sorted(nodes), self._needed(nodes, leave)

    def _needed(self, nodes: list[int], leave: list[int]) -> list[int]:
        """Those who leave, without any that the others make room enough without: the dearest of these stays."""
        on = {node: {row for row in leave if node in self.running.allocated.nodes(row)} for node in nodes}
        for row in sorted(leave, key=lambda row: (self.running.price([row]), row), reverse=True):
            here = [node for node in nodes if row in on[node]]  # elsewhere its staying changes nothing
            if all(self.enough(node, sorted(on[node] - {row})) for node in here):
                for node in here:
                    on[node].remove(row)
        return sorted(set().union(*on.values()))

    def _victims_on(self, node: int, leave: Sequence[int], way: PreemptableJobs) -> list[int] | None:
        """The less urgent jobs whose leaving makes room on a node, beside those that leave already; None if none do."""
        lack = self.lack(node, leave)
        if self._short(node, lack) <= _NOTHING:
            return []
        less = [row for row in way.on(node) if way.place[row] > way.place[self.row] and row not in leave]
        shares = {row: share_on_node(self.snapshot, way.allocated, row, node) for row in less}
        if self._short(node, _lack_without(lack, shares.values())) > _NOTHING:
            return None  # they are too few all together
        enough = (
            rows
            for rows in _victim_sets(less, way)
            if self._short(node, _lack_without(lack, [shares[row] for row in rows])) <= _NOTHING
        )
        return min(enough, key=lambda rows: (way.price(rows), rows), default=None)

    def enough(self, node: int, leave: Sequence[int]) -> bool:
        """Whether a node has enough for the job after these are preempted."""
        return self._short(node, self.lack(node, leave)) <= _NOTHING

    def _short(self, node: int, lack: Amounts) -> float:
        """The largest amount that is lacking, once the CPUs of GPUs that the job does not use are left to others."""
        gpus, cpus, memory_mib = lack
        return max(gpus, cpus + int(self.need.cpus_per_other_gpu[node]) * max(-gpus, 0), memory_mib)

    def lack(self, node: int, leave: Sequence[int]) -> Amounts:
        """GPUs, CPUs and memory [MiB] that a node lacks for the job after these are preempted."""
        needs, has, allocated = self.need, self.available, self.running.allocated
        gpus, cpus = int(needs.gpus[node] - has.gpus[node]), float(needs.cpus[node] - has.cpus[node])
        lack = (gpus, cpus, float(needs.memory_mib[node] - has.memory_mib[node]))
        return _lack_without(
            lack, [share_on_node(self.snapshot, allocated, row, node) for row in leave if node in allocated.nodes(row)]
        )


def _lack_without(lack: Amounts, shares: Iterable[Amounts]) -> Amounts:
    gpus, cpus, memory_mib = lack
    for share_gpus, share_cpus, share_mib in shares:
        gpus, cpus, memory_mib = gpus - share_gpus, cpus - share_cpus, memory_mib - share_mib
    return gpus, cpus, memory_mib


def _victim_sets(rows: list[int], running: PreemptableJobs) -> Iterator[list[int]]:
    """Every set of the rows if they are few, otherwise only growing sets of the cheapest."""
    if len(rows) <= _EXACT:
        for size in range(1, len(rows) + 1):
            yield from map(list, combinations(rows, size))
        return
    order = sorted(rows, key=lambda row: (running.price([row]), row))
    for size in range(1, len(order) + 1):
        yield sorted(order[:size])
