"""Preemption for urgent jobs: exact nodes, the victims that lose the fewest GPU seconds, and a reason if there are
none."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np

from slurmsched.config import PreemptionConfig, ScopeConfig
from slurmsched.model import JobState, Operation, Purpose, Ranking, Refusal, Snapshot, Victim
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import parse_hints
from slurmsched.model.hostlists import expand_hostlist, fold_hostlist
from slurmsched.plain_text import pluralize
from slurmsched.planning.operations import victims
from slurmsched.planning.operations.operation_state import OperationState
from slurmsched.planning.operations.victims import PreemptableJobs, VictimSearch
from slurmsched.planning.proposals import StartedOperations
from slurmsched.resources.allocated import AllocatedGpus
from slurmsched.resources.by_type import allocated_of_type
from slurmsched.resources.eligibility import allowed_nodes
from slurmsched.resources.free import FreeResources, JobRequirements, nodes_beside_reservations
from slurmsched.resources.reservation_limits import YEAR_S, UnknownEligibility, reserved_from_s
from slurmsched.resources.startable_jobs import not_waiting_for_gpus, startable
from slurmsched.resources.topology_limits import (
    first_nodes_for_one_job,
    topology_for_job,
    topology_request,
    unknown_topology_rule,
)

_SET_BACK_S = 60.0  # a job that Slurm does not start so long, as the clock was set back, is worth waiting for
_CLOCKS_S = 2.0  # by so much the clocks of two hosts, or a rounded time, may differ


# Over 30 lines: half is signature and docstring; the loop changes what is left for the next job.
def begin_preemptions(
    snapshot: Snapshot,
    ranking: Ranking,
    managed: Bools,
    config: PreemptionConfig,
    scope: ScopeConfig,
    lease_s: float = 0.0,
) -> StartedOperations:
    """Operations for the most urgent managed jobs that can only start if others leave, at most as many as may be open.

    managed: (N,) bool, pending jobs that slurmsched may move.
    lease_s: so long a job takes no GPUs of one that took its own [s].

    Slurm starts a job that fits into what is free, or into what operations leave over. What it will take counts as
    gone. No job loses GPUs to one that is not more urgent, or that cannot get all it needs.
    """
    case = victims.preemption_case(snapshot, config, scope)
    place = np.empty(len(snapshot.jobs), np.int64)
    place[ranking.order] = np.arange(len(ranking.order))
    verdict = victims.victim_verdicts(case)
    running = PreemptableJobs(verdict < 0, _lost_gpu_s(case), place, AllocatedGpus.of(snapshot))
    available = FreeResources.of(snapshot)
    for operation in _preemptions(snapshot):
        available.follow(snapshot, operation, running.allocated)
    begun: list[Operation] = []
    refused = _refused_by_limit(snapshot, ranking, managed, config.candidates)
    for row in preemption_candidates(snapshot, ranking, managed)[: config.candidates].tolist():
        if len(_preemptions(snapshot)) + len(begun) >= config.most_in_progress:
            break
        leased = victims.protected_by_lease(snapshot, int(snapshot.jobs.job_id[row]), lease_s)
        found = _for_job(snapshot, row, running.without(snapshot, leased), available, config, begun)
        if isinstance(found, Refusal):
            refused.append(found)
        elif found is not None and _users(snapshot, begun, found.user) < config.most_per_user:
            begun.append(found)
            available.follow(snapshot, found, running.allocated)
            running = running.without(snapshot, [victim.job_id for victim in found.victims])
    return StartedOperations(tuple(begun), tuple(refused))


def cannot_start(operation: Operation, snapshot: Snapshot) -> str:
    """Why the job of an operation could not start on its nodes now, were all its victims gone; "" if it could.

    Judged as when the operation began: job, nodes and what is free there. The reservation of the operation counts as
    the job's own. Asked again each time somebody is about to lose GPUs for it, and while its nodes are kept for it."""
    state = OperationState(operation, snapshot)
    if (row := state.beneficiary) < 0 or not state.waits:
        return "its job is held, or left the queue"
    why = _not_now(state, row) or _other_size(state, row)
    if why or (state.graced and state.closed):  # a node may be open again by the time that somebody would leave
        return why
    try:
        return _not_there(state, row)
    except UnknownEligibility as error:
        return f"it is not known whether its job could start: {error}"


def _not_now(state: OperationState, row: int) -> str:
    """Why the job itself could not start when its nodes are free."""
    at, jobs = state.snapshot, state.snapshot.jobs
    if jobs.dependency[row]:
        return f"its job waits for other jobs ({jobs.dependency[row]})"
    if jobs.reservation[row] not in ("", state.operation.reservation):
        return f"its job names another reservation, {jobs.reservation[row]}"
    grace_s = state.operation.stage_s + state.grace_s - at.now_s if state.graced else 0.0
    late_s = float(jobs.eligible_s[row]) - max(at.now_s + grace_s, state.operation.promised_s)
    least_s = _CLOCKS_S
    at_first_s = float(jobs.submit_s[row]) + _SET_BACK_S  # by then a busy slurmctld has seen a job, which it may start
    if jobs.eligible_s[row] <= at_first_s:  # asked by no user: a clock was set back, or ours is behind
        least_s = _SET_BACK_S if jobs.reason[row] == "BeginTime" else inf
    return f"its job may not start until {late_s:.0f} s later" if late_s > least_s else ""


def _other_size(state: OperationState, row: int) -> str:
    """In what the job needs more than the operation keeps for it."""
    jobs, operation = state.snapshot.jobs, state.operation
    if int(jobs.nodes[row]) != (kept := len(expand_hostlist(operation.nodes))):
        return f"its job asks for {pluralize(int(jobs.nodes[row]), 'node')}, {kept} were chosen"
    if min(float(jobs.time_limit_s[row]), YEAR_S) > operation.time_limit_s + 1:
        return "its job may run longer than its nodes are kept"
    return topology_request(state.snapshot, row)


def _not_there(state: OperationState, row: int) -> str:
    """What keeps the job from its nodes, or too little of them from the job. Raises UnknownEligibility."""
    operation, at = state.operation, _unnamed(state.snapshot, row)
    need, available, allocated = JobRequirements.of(at, row), FreeResources.of(at), AllocatedGpus.of(at)
    for other in _preemptions(at):
        if other.id != operation.id:
            available.follow(at, other, allocated)
    here = at.nodes.name.isin(expand_hostlist(operation.nodes))
    able = available.types.able(need.gpu_type, need.gpus)
    if not (allowed := here & allowed_nodes(at, row, able) & need.fits_empty(at))[here].all():
        bad = at.nodes.name[int(np.flatnonzero(here & ~allowed)[0])]
        return f"node {state.closed} takes no new job" if state.closed else f"its job cannot run on node {bad}"
    if int(here.sum()) != need.nodes or not len(
        first_nodes_for_one_job(topology_for_job(at, row), np.flatnonzero(here), need.nodes)
    ):
        return "Slurm would not start its job on these nodes together"
    if (reserved_from_s(at, (operation,)) < _until_s(at, row))[here].any():
        return "another reservation holds its nodes before its job would end"
    return "" if operation.purpose == Purpose.RESERVE else _taken_reason(state, row, need, available)


def _unnamed(snapshot: Snapshot, row: int) -> Snapshot:
    """The snapshot as if the job in this row named no reservation, as when it was judged first."""
    named = snapshot.jobs.reservation
    if not named[row]:
        return snapshot
    texts = ["" if at == row else name for at, name in enumerate(named)]
    return replace(snapshot, jobs=snapshot.jobs.with_columns(reservation=texts))


def _taken_reason(state: OperationState, row: int, need: JobRequirements, available: FreeResources) -> str:
    """On which of its nodes others hold what the job needs.

    While victims are there what is free and what they give must do. Later only jobs that are known to hold GPUs count.
    For a moment Slurm may show GPUs of ended victims, or of the job itself, as used.
    """
    at, jobs, operation = state.snapshot, state.snapshot.jobs, state.operation
    here = np.flatnonzero(at.nodes.name.isin(expand_hostlist(operation.nodes)))
    typed = bool(need.gpu_type) and bool(available.types.known.any())
    allocated = allocated_of_type(at, need.gpu_type) if typed else AllocatedGpus.of(at)
    running = PreemptableJobs(
        np.zeros(len(jobs), np.bool_), np.zeros(len(jobs)), np.zeros(len(jobs), np.int64), allocated
    )
    victims_rows = [jobs.row_of(victim.job_id) for victim in operation.victims]
    leave = [jobs.row_of(victim.job_id) for victim in state.remaining]
    clearing = VictimSearch(at, row, need, running, available.seen_by(need))
    lacks = [node for node in here.tolist() if not clearing.enough(node, leave)]
    if lacks and (not leave or any(jobs.is_state(JobState.COMPLETING)[[row for row in victims_rows if row >= 0]])):
        other = np.setdiff1d(np.arange(len(jobs)), [row, *victims_rows])
        taken = allocated.table(other, at.nodes.gpus.astype(np.int64)).sum(axis=0)
        lacks = [node for node in lacks if at.nodes.gpus[node] - taken[node] < need.gpus[node]]
    return f"others hold what its job needs of node {at.nodes.name[lacks[0]]}" if lacks else ""


def preemption_candidates(snapshot: Snapshot, ranking: Ranking, managed: Bools) -> Int64s:
    """Rows of waiting jobs that could start if there were GPUs, most urgent first: none that Slurm keeps by a limit."""
    waits = _may_preempt(snapshot, managed) & ~not_waiting_for_gpus(snapshot.jobs)
    return ranking.order[waits[ranking.order]]


def operation_id(snapshot: Snapshot, job_id: int) -> str:
    """Name of an operation that begins now for this job, unlike that of any operation of any slurmsched."""
    name = f"{job_id}-{int(snapshot.now_s)}"
    return f"{snapshot.tag}-{name}" if snapshot.tag else name


def _may_preempt(snapshot: Snapshot, managed: Bools) -> Bools:
    """Whom nodes could be kept for, as far as the queue tells. (N,) bool."""
    jobs = snapshot.jobs
    busy = np.isin(jobs.job_id, [operation.job_id for operation in snapshot.operations])
    plain = (jobs.array_tasks == 1) & (jobs.het_job_id == 0)  # a reservation is one job's
    waits: Bools = managed & startable(snapshot) & ~busy & plain & (jobs.gpus > 0)
    return waits


def _refused_by_limit(snapshot: Snapshot, ranking: Ranking, managed: Bools, most: int) -> list[Refusal]:
    """Why no job is preempted for jobs that wait for something other than GPUs, for the most urgent of them."""
    jobs = snapshot.jobs
    waits = (_may_preempt(snapshot, managed) & not_waiting_for_gpus(jobs))[ranking.order]
    why = "no job is preempted for it: it waits for"
    rows = ranking.order[waits][:most].tolist()
    return [Refusal(int(jobs.job_id[row]), "limit", f"{why} {jobs.reason[row]}, not for GPUs") for row in rows]


def _users(snapshot: Snapshot, begun: list[Operation], user: str) -> int:
    return sum(operation.user == user for operation in (*_preemptions(snapshot), *begun))


def _preemptions(snapshot: Snapshot) -> list[Operation]:
    return [operation for operation in snapshot.operations if operation.purpose == Purpose.PREEMPT]


def _lost_gpu_s(case: victims.PreemptionCase) -> Floats:
    """GPU seconds of work each job would lose: its move, and all of its run where no checkpoint is asked for. (N,)."""
    jobs = case.jobs
    keeps = case.hinted(lambda hints: 0.0 if hints.ckpt is None else 1.0) > 0
    return (victims.restart_costs_s(jobs, case.config.restart_cost_s) + np.where(keeps, 0.0, jobs.run_s)) * jobs.gpus


# Over 30 lines: the order of the tests decides which refusal is given.
def _for_job(
    snapshot: Snapshot,
    row: int,
    running: PreemptableJobs,
    available: FreeResources,
    config: PreemptionConfig,
    begun: list[Operation],
) -> Operation | Refusal | None:
    """The operation for one job; a refusal that says why there is none; None for a job that starts without."""
    job_id, need = int(snapshot.jobs.job_id[row]), JobRequirements.of(snapshot, row)
    try:
        able = available.types.able(need.gpu_type, need.gpus)
        allowed = np.flatnonzero(allowed_nodes(snapshot, row, able) & need.fits_empty(snapshot))
        beside, seen = nodes_beside_reservations(snapshot, row, available.seen_by(need), _preemptions(snapshot))
        kept = _already_reserved(snapshot, row, begun)
    except UnknownEligibility as error:
        return Refusal(job_id, "constraint", f"no job is preempted for it: {error}")
    topology = topology_for_job(snapshot, row)
    if why := unknown_topology_rule(topology, need.nodes):
        return Refusal(job_id, "constraint", f"no job is preempted for it: {why}")
    last = np.argsort(snapshot.nodes.after_boot[allowed], kind="stable")  # Slurm boots nodes only where it must
    free = first_nodes_for_one_job(topology, allowed[last][(seen.fits(need) & beside)[allowed[last]]], need.nodes)
    if len(free):
        available.take(free[: need.nodes], need)
        return None
    if _perhaps_free(snapshot, row, need, seen):
        why = "no job is preempted for it: it may fit on nodes whose used GPUs could not be read"
        return Refusal(job_id, "unread", why)
    if why := topology_request(snapshot, row):
        return Refusal(job_id, "constraint", f"no job is preempted for it: {why}")
    if not len(first_nodes_for_one_job(topology, allowed, need.nodes)):
        return Refusal(job_id, "nodes", _too_few(snapshot, row, need, available))
    if need.gpu_type and available.types.known.any():
        running = replace(running, allocated=allocated_of_type(snapshot, need.gpu_type))
    chosen = VictimSearch(snapshot, row, need, running, seen).cheapest(allowed[~kept[allowed]])
    if chosen is None:
        return Refusal(job_id, "victims", "no jobs that may lose their GPUs free enough of any nodes it could have")
    nodes, rows = chosen
    return _operation(snapshot, row, nodes, rows, running, config)


def _perhaps_free(snapshot: Snapshot, row: int, need: JobRequirements, available: FreeResources) -> bool:
    """Whether the job would start at once if nodes whose used GPUs cannot be read had all of them free."""
    nodes = snapshot.nodes
    unread = nodes.gpus_unread
    if not unread.any():
        return False
    opened = replace(snapshot, nodes=nodes.with_columns(gpus_unread=np.zeros_like(unread)))
    gpus = np.where(unread, nodes.gpus, available.gpus)
    able = available.types.able(need.gpu_type, need.gpus)
    room = allowed_nodes(opened, row, able) & replace(available, gpus=gpus).fits(need)
    return len(first_nodes_for_one_job(topology_for_job(snapshot, row), np.flatnonzero(room), need.nodes)) > 0


def _too_few(snapshot: Snapshot, row: int, need: JobRequirements, available: FreeResources) -> str:
    """Why a job has no nodes that could be cleared: they are not there, or it is not known what is free on them."""
    could = available.types.could(need.gpu_type, need.gpus)
    with_mixed = np.flatnonzero(allowed_nodes(snapshot, row, could) & need.fits_empty(snapshot))
    if len(first_nodes_for_one_job(topology_for_job(snapshot, row), with_mixed, need.nodes)):
        return "too few nodes; on nodes with several GPU types it is unknown which are free"
    return "too few nodes could hold it, even if empty"


def _already_reserved(snapshot: Snapshot, row: int, begun: list[Operation]) -> Bools:
    """Nodes on which no reservation for the job could stand, since another one does. (N,) bool.

    Raises UnknownEligibility.
    """
    names = [name for operation in (*snapshot.operations, *begun) for name in expand_hostlist(operation.nodes)]
    return (reserved_from_s(snapshot) < _until_s(snapshot, row)) | snapshot.nodes.name.isin(names)


def _until_s(snapshot: Snapshot, row: int) -> float:
    """When a job that starts now is over by its limit [Unix s]."""
    return snapshot.now_s + min(float(snapshot.jobs.time_limit_s[row]), YEAR_S)


def _operation(
    snapshot: Snapshot, row: int, nodes: list[int], rows: list[int], running: PreemptableJobs, config: PreemptionConfig
) -> Operation:
    jobs, now_s = snapshot.jobs, snapshot.now_s
    job_id = int(jobs.job_id[row])
    limit_s = min(float(jobs.time_limit_s[row]), YEAR_S)
    chosen = tuple(_victim(snapshot, each, float(running.lost_gpu_s[each]), config) for each in rows)
    hosts = fold_hostlist(snapshot.nodes.name[node] for node in nodes)
    key = (operation_id(snapshot, job_id), Purpose.PREEMPT, job_id, float(jobs.submit_s[row]), jobs.user[row])
    return Operation(*key, hosts, limit_s, now_s, chosen)


def _victim(snapshot: Snapshot, row: int, lost_gpu_s: float, config: PreemptionConfig) -> Victim:
    jobs = snapshot.jobs
    ckpt = parse_hints(jobs.comment[row]).ckpt
    signal, grace_s = (ckpt.signal, min(ckpt.lead_s, config.grace_s)) if ckpt else ("", 0.0)
    key = (int(jobs.job_id[row]), float(jobs.submit_s[row]), int(jobs.restarts[row]), int(jobs.gpus[row]))
    return Victim(*key, signal, grace_s, lost_gpu_s, victims.restart_cost_source(jobs, row))
