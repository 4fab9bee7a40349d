"""Whose GPUs a more urgent job gets: exact nodes, the fewest GPU seconds lost, and a reason where it cannot be."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np

from slurmsched.config import Preemption, Scope
from slurmsched.model import Act, JobState, Purpose, Ranking, Refusal, Snapshot, Victim
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import parse_hints
from slurmsched.model.hostlist import expand, fold
from slurmsched.placements.candidates import eligible
from slurmsched.planning import victims
from slurmsched.planning.act_facts import Facts
from slurmsched.planning.bounds import YEAR_S, UnknownForm, allowed_nodes, blocked_from_s, left_by_reservations
from slurmsched.planning.clearing import Clearing, Running
from slurmsched.planning.limited import limited
from slurmsched.planning.parts import Begun
from slurmsched.planning.reach import binding, shortest_head, unknown
from slurmsched.planning.spread import asked
from slurmsched.resources.free import FreeResources, JobRequirements, held_of
from slurmsched.resources.held import Held
from slurmsched.words import some

_SET_BACK_S = 60.0  # a job that Slurm does not start so long, as the clock was set back, is worth waiting for
_CLOCKS_S = 2.0  # by so much the clocks of two hosts, or a rounded time, may differ


def begin(
    snapshot: Snapshot, ranking: Ranking, managed: Bools, limits: Preemption, scope: Scope, lease_s: float = 0.0
) -> Begun:
    """Acts for the most urgent managed jobs that can only start if others leave, at most as many as may be open.

    managed: (N,) bool, pending jobs that slurmsched may move. lease_s: so long a job takes no GPUs of one that took its
    own. A job that fits into what is free, or into what acts leave over, is left to Slurm, and what it will take counts
    as gone. Nobody loses GPUs to a job that is not more urgent, or cannot get all it needs.
    """
    case = victims.case_of(snapshot, limits, scope)
    place = np.empty(len(snapshot.jobs), np.int64)
    place[ranking.order] = np.arange(len(ranking.order))
    verdict = victims.verdicts(case)
    running = Running(verdict < 0, _lost_gpu_s(case), place, Held.of(snapshot))
    stock = FreeResources.of(snapshot)
    for act in _preemptions(snapshot):
        stock.follow(snapshot, act, running.held)
    acts: list[Act] = []
    refused = _limited(snapshot, ranking, managed, limits.candidates)
    for row in candidates(snapshot, ranking, managed)[: limits.candidates].tolist():
        if len(_preemptions(snapshot)) + len(acts) >= limits.acts:
            break
        leased = victims.leased(snapshot, int(snapshot.jobs.job_id[row]), lease_s)
        found = _for_job(snapshot, row, running.without(snapshot, leased), stock, limits, acts)
        if isinstance(found, Refusal):
            refused.append(found)
        elif found is not None and _users(snapshot, acts, found.user) < limits.acts_per_user:
            acts.append(found)
            stock.follow(snapshot, found, running.held)
            running = running.without(snapshot, [victim.job_id for victim in found.victims])
    return Begun(tuple(acts), tuple(refused))


def unable(act: Act, snapshot: Snapshot) -> str:
    """Why the job of an act could not start on its nodes now, were all its victims gone; "" if it could.

    Judged as when the act began: job, nodes and what is free there. The reservation of the act counts as the job's own.
    Asked again each time somebody is about to lose GPUs for it, and while its nodes are kept for it.
    """
    facts = Facts(act, snapshot)
    if (row := facts.beneficiary) < 0 or not facts.waits:
        return "its job is held, or left the queue"
    why = _not_now(facts, row) or _other_size(facts, row)
    if why or (facts.graced and facts.closed):  # a node may be open again by the time that somebody would leave
        return why
    try:
        return _not_there(facts, row)
    except UnknownForm as error:
        return f"it is not known whether its job could start: {error}"


def _not_now(facts: Facts, row: int) -> str:
    """What keeps the job itself from a start when its nodes are to be its own."""
    at, jobs = facts.snapshot, facts.snapshot.jobs
    if jobs.dependency[row]:
        return f"its job waits for other jobs ({jobs.dependency[row]})"
    if jobs.reservation[row] not in ("", facts.act.reservation):
        return f"its job names another reservation, {jobs.reservation[row]}"
    grace_s = facts.act.stage_s + facts.grace_s - at.now_s if facts.graced else 0.0
    late_s = float(jobs.eligible_s[row]) - max(at.now_s + grace_s, facts.act.promised_s)
    least_s = _CLOCKS_S
    at_first_s = float(jobs.submit_s[row]) + _SET_BACK_S  # by then a busy slurmctld has seen a job, which it may start
    if jobs.eligible_s[row] <= at_first_s:  # nobody's wish: a clock was set back, or ours is behind
        least_s = _SET_BACK_S if jobs.reason[row] == "BeginTime" else inf
    return f"its job may not start until {late_s:.0f} s later" if late_s > least_s else ""


def _other_size(facts: Facts, row: int) -> str:
    """How the job outgrows what is kept for it."""
    jobs, act = facts.snapshot.jobs, facts.act
    if int(jobs.nodes[row]) != (kept := len(expand(act.nodes))):
        return f"its job asks for {some(int(jobs.nodes[row]), 'node')}, {kept} were chosen"
    if min(float(jobs.time_limit_s[row]), YEAR_S) > act.time_limit_s + 1:
        return "its job may run longer than its nodes are kept"
    return asked(facts.snapshot, row)


def _not_there(facts: Facts, row: int) -> str:
    """What keeps the job from its nodes, or too little of them from the job. Raises UnknownForm."""
    act, at = facts.act, _unnamed(facts.snapshot, row)
    need, stock, held = JobRequirements.of(at, row), FreeResources.of(at), Held.of(at)
    for other in _preemptions(at):
        if other.id != act.id:
            stock.follow(at, other, held)
    here = at.nodes.name.isin(expand(act.nodes))
    able = stock.types.able(need.gpu_type, need.gpus)
    if not (allowed := here & allowed_nodes(at, row, able) & need.fits_empty(at))[here].all():
        bad = at.nodes.name[int(np.flatnonzero(here & ~allowed)[0])]
        return f"node {facts.closed} takes no new job" if facts.closed else f"its job cannot run on node {bad}"
    if int(here.sum()) != need.nodes or not len(shortest_head(binding(at, row), np.flatnonzero(here), need.nodes)):
        return "Slurm would not start its job on these nodes together"
    if (blocked_from_s(at, (act,)) < _until_s(at, row))[here].any():
        return "another reservation holds its nodes before its job would end"
    return "" if act.purpose == Purpose.PROMISE else _taken(facts, row, need, stock)


def _unnamed(snapshot: Snapshot, row: int) -> Snapshot:
    """The snapshot as if the job in this row named no reservation, as when it was judged first."""
    named = snapshot.jobs.reservation
    if not named[row]:
        return snapshot
    texts = ["" if at == row else name for at, name in enumerate(named)]
    return replace(snapshot, jobs=snapshot.jobs.with_columns(reservation=texts))


def _taken(facts: Facts, row: int, need: JobRequirements, stock: FreeResources) -> str:
    """On which of its nodes others hold what the job needs.

    While victims are there what is free and what they give must do. Later only jobs that are known to hold GPUs count:
    Slurm may show GPUs of those who leave, or of the job itself, as used for a moment.
    """
    at, jobs, act = facts.snapshot, facts.snapshot.jobs, facts.act
    here = np.flatnonzero(at.nodes.name.isin(expand(act.nodes)))
    typed = bool(need.gpu_type) and bool(stock.types.told.any())
    held = held_of(at, need.gpu_type) if typed else Held.of(at)
    running = Running(np.zeros(len(jobs), np.bool_), np.zeros(len(jobs)), np.zeros(len(jobs), np.int64), held)
    victims_rows = [jobs.row_of(victim.job_id) for victim in act.victims]
    leave = [jobs.row_of(victim.job_id) for victim in facts.left]
    clearing = Clearing(at, row, need, running, stock.seen_by(need))
    lacks = [node for node in here.tolist() if not clearing.enough(node, leave)]
    if lacks and (not leave or any(jobs.is_state(JobState.COMPLETING)[[row for row in victims_rows if row >= 0]])):
        other = np.setdiff1d(np.arange(len(jobs)), [row, *victims_rows])
        taken = held.table(other, at.nodes.gpus.astype(np.int64)).sum(axis=0)
        lacks = [node for node in lacks if at.nodes.gpus[node] - taken[node] < need.gpus[node]]
    return f"others hold what its job needs of node {at.nodes.name[lacks[0]]}" if lacks else ""


def candidates(snapshot: Snapshot, ranking: Ranking, managed: Bools) -> Int64s:
    """Rows of waiting jobs that could start if there were GPUs, most urgent first: none that Slurm keeps by a limit."""
    waits = _waiting(snapshot, managed) & ~limited(snapshot.jobs)
    return ranking.order[waits[ranking.order]]


def act_id(snapshot: Snapshot, job_id: int) -> str:
    """Name of an act that begins now for this job, unlike that of any act of any slurmsched."""
    name = f"{job_id}-{int(snapshot.now_s)}"
    return f"{snapshot.tag}-{name}" if snapshot.tag else name


def _waiting(snapshot: Snapshot, managed: Bools) -> Bools:
    """Whom nodes could be kept for, as far as the queue tells. (N,) bool."""
    jobs = snapshot.jobs
    busy = np.isin(jobs.job_id, [act.job_id for act in snapshot.acts])
    plain = (jobs.array_tasks == 1) & (jobs.het_job_id == 0)  # a reservation is one job's
    waits: Bools = managed & eligible(snapshot) & ~busy & plain & (jobs.gpus > 0)
    return waits


def _limited(snapshot: Snapshot, ranking: Ranking, managed: Bools, most: int) -> list[Refusal]:
    """Why nobody leaves for jobs that wait for something else than GPUs, the most urgent of them."""
    jobs = snapshot.jobs
    waits = (_waiting(snapshot, managed) & limited(jobs))[ranking.order]
    why = "nobody gives it GPUs: it waits for something else"
    rows = ranking.order[waits][:most].tolist()
    return [Refusal(int(jobs.job_id[row]), "limit", f"{why} ({jobs.reason[row]})") for row in rows]


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
    snapshot: Snapshot, row: int, running: Running, stock: FreeResources, limits: Preemption, begun: list[Act]
) -> Act | Refusal | None:
    """The act for one job; a refusal that says why there is none; None for a job that starts without."""
    job_id, need = int(snapshot.jobs.job_id[row]), JobRequirements.of(snapshot, row)
    try:
        able = stock.types.able(need.gpu_type, need.gpus)
        allowed = np.flatnonzero(allowed_nodes(snapshot, row, able) & need.fits_empty(snapshot))
        seen = stock.seen_by(need)
        left = left_by_reservations(snapshot, row, seen, _preemptions(snapshot))
        kept = _kept(snapshot, row, begun)
    except UnknownForm as error:
        return Refusal(job_id, "constraint", f"nobody gives it GPUs: {error}")
    topology = binding(snapshot, row)
    if why := unknown(topology, need.nodes):
        return Refusal(job_id, "constraint", f"nobody gives it GPUs: {why}")
    last = np.argsort(snapshot.nodes.after_boot[allowed], kind="stable")  # Slurm boots nodes only where it must
    free = shortest_head(topology, allowed[last][(seen.fits(need) & left)[allowed[last]]], need.nodes)
    if len(free):
        stock.take(free[: need.nodes], need)
        return None
    if _perhaps_free(snapshot, row, need, seen):
        why = "nobody gives it GPUs: it may start on nodes of which it cannot be read how many GPUs are in use"
        return Refusal(job_id, "unread", why)
    if why := asked(snapshot, row):
        return Refusal(job_id, "constraint", f"nobody gives it GPUs: {why}")
    if not len(shortest_head(topology, allowed, need.nodes)):
        return Refusal(job_id, "nodes", _too_few(snapshot, row, need, stock))
    if need.gpu_type and stock.types.told.any():
        running = replace(running, held=held_of(snapshot, need.gpu_type))
    chosen = Clearing(snapshot, row, need, running, seen).cheapest(allowed[~kept[allowed]])
    if chosen is None:
        return Refusal(job_id, "victims", "no jobs that may lose their GPUs free enough of any nodes it could have")
    nodes, rows = chosen
    return _act(snapshot, row, nodes, rows, running, limits)


def _perhaps_free(snapshot: Snapshot, row: int, need: JobRequirements, stock: FreeResources) -> bool:
    """Whether the job would start at once if nodes whose used GPUs cannot be read had all of them free."""
    nodes = snapshot.nodes
    unread = nodes.gpus_unread
    if not unread.any():
        return False
    opened = replace(snapshot, nodes=nodes.with_columns(gpus_unread=np.zeros_like(unread)))
    gpus = np.where(unread, nodes.gpus, stock.gpus)
    room = allowed_nodes(opened, row, stock.types.able(need.gpu_type, need.gpus)) & replace(stock, gpus=gpus).fits(need)
    return len(shortest_head(binding(snapshot, row), np.flatnonzero(room), need.nodes)) > 0


def _too_few(snapshot: Snapshot, row: int, need: JobRequirements, stock: FreeResources) -> str:
    """Why a job has no nodes that could be cleared: they are not there, or it is not known what is free on them."""
    could = stock.types.could(need.gpu_type, need.gpus)
    with_mixed = np.flatnonzero(allowed_nodes(snapshot, row, could) & need.fits_empty(snapshot))
    if len(shortest_head(binding(snapshot, row), with_mixed, need.nodes)):
        return "too few nodes without those of several GPU types of which it is not known now which types are free"
    return "too few nodes meet what it asks for, whoever left"


def _kept(snapshot: Snapshot, row: int, begun: list[Act]) -> Bools:
    """Nodes on which no reservation for the job could stand, since another one does. (N,) bool. Raises UnknownForm."""
    names = [name for act in (*snapshot.acts, *begun) for name in expand(act.nodes)]
    return (blocked_from_s(snapshot) < _until_s(snapshot, row)) | snapshot.nodes.name.isin(names)


def _until_s(snapshot: Snapshot, row: int) -> float:
    """When a job that starts now is over by its limit [Unix s]."""
    return snapshot.now_s + min(float(snapshot.jobs.time_limit_s[row]), YEAR_S)


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
