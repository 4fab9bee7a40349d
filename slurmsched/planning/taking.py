"""Whose GPUs a more urgent job gets: exact nodes, the fewest GPU seconds lost, and a reason where it cannot be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from slurmsched.config import Preemption, Scope
from slurmsched.model import Act, Purpose, Ranking, Refusal, Snapshot, Victim
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import parse_hints
from slurmsched.model.hostlist import expand, fold
from slurmsched.placements.candidates import Held, eligible
from slurmsched.planning import victims
from slurmsched.planning.bounds import YEAR_S, UnknownForm, allowed_nodes, blocked_from_s
from slurmsched.planning.limited import limited
from slurmsched.planning.parts import Begun
from slurmsched.planning.spread import asked
from slurmsched.planning.stock import Need, Stock

_EXACT = 10  # victims of a node up to which every set of them is tried


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """Running jobs that may lose their GPUs. lost_gpu_s: (J,) work each would lose. held: GPUs by row and node."""

    may_lose: Bools
    lost_gpu_s: Floats
    place: Int64s
    held: Held

    def without(self, snapshot: Snapshot, job_ids: Iterable[int]) -> Running:
        """The same, but these jobs keep their GPUs."""
        kept = np.isin(snapshot.jobs.job_id, sorted(job_ids))
        return replace(self, may_lose=self.may_lose & ~kept) if kept.any() else self

    def price(self, rows: list[int]) -> tuple[float, int, list[int]]:
        """What the leaving of these costs, to be compared: GPU seconds of work lost, how many leave, and which by the
        order of the policy: the most urgent of them as late in it as can be, then the next."""
        return float(self.lost_gpu_s[rows].sum()), len(rows), sorted(-self.place[rows], reverse=True)

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


def begin(
    snapshot: Snapshot, ranking: Ranking, managed: Bools, limits: Preemption, scope: Scope, lease_s: float = 0.0
) -> Begun:
    """Acts for the most urgent managed jobs that can only start if others leave, at most as many as may be open.

    managed: (N,) bool, pending jobs that slurmsched may move. lease_s: so long a job takes no GPUs of one that took its
    own. A job that fits into what is free is left to Slurm, and what it will take counts as gone. Nobody loses GPUs to
    a job that is not more urgent, or cannot get all it needs.
    """
    case = victims.case_of(snapshot, limits, scope)
    place = np.empty(len(snapshot.jobs), np.int64)
    place[ranking.order] = np.arange(len(ranking.order))
    verdict = victims.verdicts(case)
    running = Running(verdict < 0, _lost_gpu_s(case), place, Held.of(snapshot))
    stock = Stock.of(snapshot)
    acts: list[Act] = []
    refused: list[Refusal] = []
    for row in candidates(snapshot, ranking, managed)[: limits.candidates].tolist():
        if len(_preemptions(snapshot)) + len(acts) >= limits.acts:
            break
        leased = victims.leased(snapshot, int(snapshot.jobs.job_id[row]), lease_s)
        found = _for_job(snapshot, row, running.without(snapshot, leased), stock, limits, acts)
        if isinstance(found, Refusal):
            refused.append(found)
        elif found is not None and _users(snapshot, acts, found.user) < limits.acts_per_user:
            acts.append(found)
            running = running.without(snapshot, [victim.job_id for victim in found.victims])
    return Begun(tuple(acts), tuple(refused))


def candidates(snapshot: Snapshot, ranking: Ranking, managed: Bools) -> Int64s:
    """Rows of waiting jobs that could start if there were GPUs, most urgent first: none that Slurm keeps by a limit."""
    jobs = snapshot.jobs
    busy = np.isin(jobs.job_id, [act.job_id for act in snapshot.acts])
    plain = (jobs.array_tasks == 1) & (jobs.het_job_id == 0)  # a reservation is one job's
    waits = managed & eligible(snapshot) & ~busy & ~limited(jobs) & plain & (jobs.gpus > 0)
    return ranking.order[waits[ranking.order]]


def act_id(snapshot: Snapshot, job_id: int) -> str:
    """Name of an act that begins now for this job, unlike that of any act of any slurmsched."""
    name = f"{job_id}-{int(snapshot.now_s)}"
    return f"{snapshot.tag}-{name}" if snapshot.tag else name


def _users(snapshot: Snapshot, acts: list[Act], user: str) -> int:
    return sum(act.user == user for act in (*_preemptions(snapshot), *acts))


def _preemptions(snapshot: Snapshot) -> list[Act]:
    return [act for act in snapshot.acts if act.purpose == Purpose.PREEMPT]


def _lost_gpu_s(case: victims.Case) -> Floats:
    """GPU seconds of work each job would lose: its move, and all of its run where no checkpoint is asked for. (N,)."""
    jobs = case.jobs
    keeps = case.hinted(lambda hints: 0.0 if hints.ckpt is None else 1.0) > 0
    return (victims.cost_s(case) + np.where(keeps, 0.0, jobs.run_s)) * jobs.gpus


def _for_job(
    snapshot: Snapshot, row: int, running: Running, stock: Stock, limits: Preemption, begun: list[Act]
) -> Act | Refusal | None:
    """The act for one job; a refusal that says why there is none; None for a job that starts without."""
    job_id, need = int(snapshot.jobs.job_id[row]), Need.of(snapshot, row)
    try:
        allowed = np.flatnonzero(allowed_nodes(snapshot, row) & need.fits_empty(snapshot))
        kept = _kept(snapshot, row, begun)
    except UnknownForm as error:
        return Refusal(job_id, "constraint", f"nobody gives it GPUs: {error}")
    free = allowed[stock.fits(need)[allowed]]
    if len(free) >= need.nodes:
        stock.take(free[: need.nodes], need)
        return None
    if why := asked(snapshot, row):
        return Refusal(job_id, "constraint", f"nobody gives it GPUs: {why}")
    if len(allowed) < need.nodes:
        return Refusal(job_id, "nodes", "too few nodes meet what it asks for, whoever left")
    chosen = _cheapest(snapshot, row, allowed[~kept[allowed]], need, running, stock)
    if chosen is None:
        return Refusal(job_id, "victims", "no jobs that may lose their GPUs free enough of any nodes it could have")
    nodes, rows = chosen
    return _act(snapshot, row, nodes, rows, running, limits)


def _kept(snapshot: Snapshot, row: int, begun: list[Act]) -> Bools:
    """Nodes on which no reservation for the job could stand, since another one does. (N,) bool. Raises UnknownForm."""
    until_s = snapshot.now_s + min(float(snapshot.jobs.time_limit_s[row]), YEAR_S)
    names = [name for act in (*snapshot.acts, *begun) for name in expand(act.nodes)]
    return (blocked_from_s(snapshot) < until_s) | snapshot.nodes.name.isin(names)


def _cheapest(
    snapshot: Snapshot, row: int, allowed: Int64s, need: Need, running: Running, stock: Stock
) -> tuple[list[int], list[int]] | None:
    """The nodes that cost the fewest lost GPU seconds, and the victims there; None if there are too few."""
    offers = []
    for node in allowed.tolist():
        if (rows := _victims_on(snapshot, row, node, need, running, stock)) is not None:
            offers.append((running.price(rows), node, rows))
    if len(offers) < need.nodes:
        return None
    best = sorted(offers)[: need.nodes]
    return [node for _, node, _ in best], sorted({victim for _, _, rows in best for victim in rows})


def _victims_on(
    snapshot: Snapshot, row: int, node: int, need: Need, running: Running, stock: Stock
) -> list[int] | None:
    """The jobs less urgent than `row` whose leaving makes room on a node, fewest GPU seconds lost; None if none do."""
    lack = tuple((needs - has)[node] for needs, has in
                 ((need.gpus, stock.gpus), (need.cpus, stock.cpus), (need.memory_mib, stock.memory_mib)))  # fmt: skip
    if max(lack) <= 0:
        return []
    less = [each for each in running.on(node) if running.place[each] > running.place[row]]
    shares = {each: running.share(snapshot, each, node) for each in less}
    enough = (rows for rows in _sets(less, running) if _covers(rows, shares, lack))
    return min(enough, key=lambda rows: (running.price(rows), rows), default=None)


def _sets(rows: list[int], running: Running) -> Iterator[list[int]]:
    """Every set of the rows if they are few, else only the cheapest ones, growing."""
    if len(rows) <= _EXACT:
        for size in range(1, len(rows) + 1):
            yield from map(list, combinations(rows, size))
        return
    order = sorted(rows, key=lambda row: (running.price([row]), row))
    for size in range(1, len(order) + 1):
        yield sorted(order[:size])


def _covers(rows: list[int], shares: dict[int, tuple[int, float, float]], lack: tuple[float, ...]) -> bool:
    return all(sum(shares[row][i] for row in rows) >= lack[i] for i in range(3))


def _act(snapshot: Snapshot, row: int, nodes: list[int], rows: list[int], running: Running, limits: Preemption) -> Act:
    jobs, now_s = snapshot.jobs, snapshot.now_s
    job_id = int(jobs.job_id[row])
    limit_s = min(float(jobs.time_limit_s[row]), YEAR_S)
    chosen = tuple(_victim(snapshot, each, float(running.lost_gpu_s[each]), limits) for each in rows)
    hosts = fold(snapshot.nodes.name[node] for node in nodes)
    key = (act_id(snapshot, job_id), Purpose.PREEMPT, job_id, float(jobs.submit_s[row]), jobs.user[row])
    return Act(*key, hosts, limit_s, now_s, chosen)


def _victim(snapshot: Snapshot, row: int, lost_gpu_s: float, limits: Preemption) -> Victim:
    jobs = snapshot.jobs
    ckpt = parse_hints(jobs.comment[row]).ckpt
    signal, grace_s = (ckpt.signal, min(ckpt.lead_s, limits.grace_s)) if ckpt else ("", 0.0)
    key = (int(jobs.job_id[row]), float(jobs.submit_s[row]), int(jobs.restarts[row]), int(jobs.gpus[row]))
    return Victim(*key, signal, grace_s, lost_gpu_s, victims.cost_source(jobs, row))
