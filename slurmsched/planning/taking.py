"""Whose GPUs a more urgent job gets: exact nodes, the fewest GPU seconds lost, and a reason where it cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from slurmsched.config import Preemption, Scope
from slurmsched.model import Act, JobState, Purpose, Ranking, Refusal, Snapshot, Victim
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import parse_hints
from slurmsched.model.hostlist import fold
from slurmsched.placements.candidates import Held, eligible
from slurmsched.planning import victims
from slurmsched.planning.bounds import UnknownForm, allowed_nodes

_EXACT = 10  # victims of a node up to which every set of them is tried
_YEAR_S = 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class Begun:
    """acts: to begin now. refused: why urgent jobs got none."""

    acts: tuple[Act, ...] = ()
    refused: tuple[Refusal, ...] = ()


@dataclass(slots=True, eq=False)
class Stock:
    """What each node has free, as the cycle goes on and gives it away. gpus, cpus: (N,) int64. memory_mib: (N,)."""

    gpus: Int64s
    cpus: Int64s
    memory_mib: Floats

    @classmethod
    def of(cls, snapshot: Snapshot) -> Stock:
        """What is free, and what jobs that are completing give back within moments: nobody need leave for that."""
        nodes, jobs = snapshot.nodes, snapshot.jobs
        stock = cls(
            (nodes.gpus - nodes.gpus_used).astype(np.int64),
            (nodes.cpus - nodes.cpus_used).astype(np.int64),
            nodes.memory_mib - nodes.memory_used_mib,
        )
        leaving = jobs.job_id[jobs.is_state(JobState.COMPLETING)]
        held = snapshot.allocations.take(np.isin(snapshot.allocations.job_id, leaving))
        row_of = {name: row for row, name in enumerate(nodes.name)}
        for job_id, name, gpus in zip(held.job_id, held.node, held.gpus, strict=True):
            row, on = int(np.searchsorted(jobs.job_id, job_id)), int((held.job_id == job_id).sum())
            if (node := row_of.get(name, -1)) >= 0:
                stock.gpus[node] += gpus
                stock.cpus[node] += int(jobs.cpus[row]) // on
                stock.memory_mib[node] += float(jobs.memory_mib[row]) / on
        return stock

    def take(self, nodes: Int64s, need: Need) -> None:
        self.gpus[nodes] -= need.gpus
        self.cpus[nodes] -= need.cpus
        self.memory_mib[nodes] -= need.memory_mib


@dataclass(frozen=True, slots=True)
class Need:
    """What a job needs on each of its nodes."""

    nodes: int
    gpus: int
    cpus: int
    memory_mib: float

    @classmethod
    def of(cls, snapshot: Snapshot, row: int) -> Need:
        jobs, nodes = snapshot.jobs, max(int(snapshot.jobs.nodes[row]), 1)
        gpus, cpus = (-(-int(column[row]) // nodes) for column in (jobs.gpus, jobs.cpus))
        return cls(nodes, gpus, cpus, float(jobs.memory_mib[row]) / nodes)


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """Running jobs that may lose their GPUs. lost_gpu_s: (J,) work each would lose. held: GPUs by row and node."""

    may_lose: Bools
    lost_gpu_s: Floats
    place: Int64s
    held: Held

    def on(self, node: int) -> list[int]:
        """Rows of those that hold GPUs of this node, ascending."""
        rows = np.repeat(np.arange(len(self.held.count)), self.held.count)
        return [int(row) for row in rows[self.held.node == node] if self.may_lose[row]]

    def share(self, snapshot: Snapshot, row: int, node: int) -> tuple[int, float, float]:
        """GPUs, CPUs and memory [MiB] that come free on a node when this job leaves; CPUs and memory spread evenly."""
        first, count = int(self.held.first[row]), int(self.held.count[row])
        here = self.held.node[first : first + count] == node
        gpus = int(self.held.gpus[first : first + count][here].sum())
        jobs = snapshot.jobs
        return gpus, float(jobs.cpus[row]) / count, float(jobs.memory_mib[row]) / count


def begin(snapshot: Snapshot, ranking: Ranking, managed: Bools, limits: Preemption, scope: Scope) -> Begun:
    """Acts for the most urgent managed jobs that can only start if others leave, at most as many as may be open.

    managed: (N,) bool, pending jobs that slurmsched may move. A job that fits into what is free is left to Slurm, and
    what it will take counts as gone. Nobody loses GPUs to a job that is not more urgent, or cannot get all it needs.
    """
    case = victims.case_of(snapshot, limits, scope)
    place = np.empty(len(snapshot.jobs), np.int64)
    place[ranking.order] = np.arange(len(ranking.order))
    verdict = victims.verdicts(case)
    running = Running(verdict < 0, _lost_gpu_s(case), place, Held.of(snapshot))
    stock = Stock.of(snapshot)
    acts: list[Act] = []
    refused: list[Refusal] = []
    for row in _candidates(snapshot, ranking, managed)[: limits.candidates].tolist():
        if len(snapshot.acts) + len(acts) >= limits.acts:
            break
        found = _for_job(snapshot, row, running, stock, limits)
        if isinstance(found, Refusal):
            refused.append(found)
        elif found is not None and _users(snapshot, acts, found.user) < limits.acts_per_user:
            acts.append(found)
            running.may_lose[np.isin(snapshot.jobs.job_id, [victim.job_id for victim in found.victims])] = False
    return Begun(tuple(acts), tuple(refused))


def _candidates(snapshot: Snapshot, ranking: Ranking, managed: Bools) -> Int64s:
    """Rows of waiting jobs that could start if there were GPUs, most urgent first."""
    jobs = snapshot.jobs
    busy = np.isin(jobs.job_id, [act.job_id for act in snapshot.acts])
    plain = (jobs.array_tasks == 1) & (jobs.het_job_id == 0)  # a reservation is one job's
    waits = managed & eligible(snapshot) & ~busy & plain & (jobs.gpus > 0)
    return ranking.order[waits[ranking.order]]


def _users(snapshot: Snapshot, acts: list[Act], user: str) -> int:
    return sum(act.user == user for act in (*snapshot.acts, *acts))


def _lost_gpu_s(case: victims.Case) -> Floats:
    """GPU seconds of work each job would lose: its move, and all of its run where no checkpoint is asked for. (N,)."""
    jobs = case.jobs
    keeps = case.hinted(lambda hints: 0.0 if hints.ckpt is None else 1.0) > 0
    return (victims.cost_s(case) + np.where(keeps, 0.0, jobs.run_s)) * jobs.gpus


def _for_job(snapshot: Snapshot, row: int, running: Running, stock: Stock, limits: Preemption) -> Act | Refusal | None:
    """The act for one job; a refusal that says why there is none; None for a job that starts without."""
    job_id, need = int(snapshot.jobs.job_id[row]), Need.of(snapshot, row)
    try:
        allowed = np.flatnonzero(allowed_nodes(snapshot, row) & _large_enough(snapshot, need))
    except UnknownForm as error:
        return Refusal(job_id, "constraint", f"nobody gives it GPUs: {error}")
    free = allowed[_fits(stock, allowed, need)]
    if len(free) >= need.nodes:
        stock.take(free[: need.nodes], need)
        return None
    if len(allowed) < need.nodes:
        return Refusal(job_id, "nodes", "too few nodes meet what it asks for, whoever left")
    chosen = _cheapest(snapshot, row, allowed, need, running, stock)
    if chosen is None:
        return Refusal(job_id, "victims", "no jobs that may lose their GPUs free enough of any nodes it could have")
    nodes, rows = chosen
    return _act(snapshot, row, nodes, rows, running, limits)


def _large_enough(snapshot: Snapshot, need: Need) -> Bools:
    """Nodes that could hold the job's share if they were empty. (N,) bool."""
    nodes = snapshot.nodes
    return (nodes.gpus >= need.gpus) & (nodes.cpus >= need.cpus) & (nodes.memory_mib >= need.memory_mib)


def _fits(stock: Stock, nodes: Int64s, need: Need) -> Bools:
    roomy = (stock.cpus[nodes] >= need.cpus) & (stock.memory_mib[nodes] >= need.memory_mib)
    return (stock.gpus[nodes] >= need.gpus) & roomy


def _cheapest(
    snapshot: Snapshot, row: int, allowed: Int64s, need: Need, running: Running, stock: Stock
) -> tuple[list[int], list[int]] | None:
    """The nodes that cost the fewest lost GPU seconds, and the victims there; None if there are too few."""
    offers = []
    for node in allowed.tolist():
        if (rows := _victims_on(snapshot, row, node, need, running, stock)) is not None:
            offers.append((float(running.lost_gpu_s[rows].sum()), node, rows))
    if len(offers) < need.nodes:
        return None
    best = sorted(offers)[: need.nodes]
    return [node for _, node, _ in best], sorted({victim for _, _, rows in best for victim in rows})


def _victims_on(
    snapshot: Snapshot, row: int, node: int, need: Need, running: Running, stock: Stock
) -> list[int] | None:
    """The jobs less urgent than `row` whose leaving makes room on a node, fewest GPU seconds lost; None if none do."""
    lack = (need.gpus - stock.gpus[node], need.cpus - stock.cpus[node], need.memory_mib - stock.memory_mib[node])
    if max(lack) <= 0:
        return []
    less = [each for each in running.on(node) if running.place[each] > running.place[row]]
    shares = {each: running.share(snapshot, each, node) for each in less}
    enough = (rows for rows in _sets(less, running.lost_gpu_s) if _covers(rows, shares, lack))
    return min(enough, key=lambda rows: (running.lost_gpu_s[rows].sum(), len(rows), rows), default=None)


def _sets(rows: list[int], lost_gpu_s: Floats) -> Iterator[list[int]]:
    """Every set of the rows if they are few, else only the cheapest ones, growing."""
    if len(rows) <= _EXACT:
        for size in range(1, len(rows) + 1):
            yield from map(list, combinations(rows, size))
        return
    order = sorted(rows, key=lambda row: (lost_gpu_s[row], row))
    for size in range(1, len(order) + 1):
        yield sorted(order[:size])


def _covers(rows: list[int], shares: dict[int, tuple[int, float, float]], lack: tuple[float, float, float]) -> bool:
    return all(sum(shares[row][i] for row in rows) >= lack[i] for i in range(3))


def _act(snapshot: Snapshot, row: int, nodes: list[int], rows: list[int], running: Running, limits: Preemption) -> Act:
    jobs, now_s = snapshot.jobs, snapshot.now_s
    job_id = int(jobs.job_id[row])
    limit_s = min(float(jobs.time_limit_s[row]), _YEAR_S)
    chosen = tuple(_victim(snapshot, each, float(running.lost_gpu_s[each]), limits) for each in rows)
    hosts = fold(snapshot.nodes.name[node] for node in nodes)
    return Act(
        f"{job_id}-{int(now_s)}", Purpose.PREEMPT, job_id, float(jobs.submit_s[row]), jobs.user[row], hosts, limit_s,
        now_s, chosen,
    )  # fmt: skip


def _victim(snapshot: Snapshot, row: int, lost_gpu_s: float, limits: Preemption) -> Victim:
    jobs = snapshot.jobs
    ckpt = parse_hints(jobs.comment[row]).ckpt
    signal, grace_s = (ckpt.signal, min(ckpt.lead_s, limits.grace_s)) if ckpt else ("", 0.0)
    key = (int(jobs.job_id[row]), float(jobs.submit_s[row]), int(jobs.restarts[row]), int(jobs.gpus[row]))
    return Victim(*key, signal, grace_s, lost_gpu_s)
