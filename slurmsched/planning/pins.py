"""On which nodes, and by which request, a pending job is to start so that its GPUs are linked as well as can be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurmsched.config import Placement as Limits
from slurmsched.config import Scope
from slurmsched.model import Delay, Pin, PinNodes, Ranking, Refusal, Retype, Snapshot, Step
from slurmsched.model.columns import Bools
from slurmsched.model.hints import parse_hints
from slurmsched.model.hostlist import same_hosts
from slurmsched.model.jobs import Jobs
from slurmsched.planning import managed as jobs_of
from slurmsched.planning.deferrals import own_starts
from slurmsched.planning.parts import Pinned
from slurmsched.planning.picks import Picks
from slurmsched.planning.pin_records import (
    act_of,
    key_of,
    left_alone,
    on_record,
    own_lists,
    returned,
    unsized,
    untouched,
)
from slurmsched.planning.pin_room import Left
from slurmsched.planning.pin_walk import Asked, Walk
from slurmsched.planning.reach import unknown
from slurmsched.planning.type_nodes import nodes_by_type
from slurmsched.protocols import Placement

LINKED_HINTS = ("nvlink", "numa", "switch")  # of the values of topo=
_MOVED = "what its list names is no longer free, or others start before it"


def pins(
    snapshot: Snapshot, ranking: Ranking, managed: Bools, placement: Placement, limits: Limits, scope: Scope,
    most: int = 500,
) -> Pinned:  # fmt: skip
    """Node lists and requests for the managed jobs that would start first, and those that have to be given back.

    A job that has a size on record, or for which an act is under way, is left as it is.
    A job is pinned to nodes of the GPU types that the policy wants for it, if so configured and there is room. Another
    of one node is pinned if its GPUs are free now, Slurm's pick there is known, and no node that it may have would give
    it a better one. Of equals the placement chooses. A gang is pinned if all of it is free now (pin_gangs.py). Jobs
    after the first that does not fit among those it competes with are not looked at: Slurm does not start them now
    either. managed: (N,) bool. most: writes of this cycle.
    """
    others, snapshot = untouched(snapshot, sizes=False), unsized(snapshot)
    mine, lost, changed = on_record(snapshot)
    mine, lost = _without(mine, others), _without(lost, others)
    jobs, waits = own_lists(snapshot), _waiting(snapshot, limits.wait_s)
    base = soon(replace(snapshot, jobs=jobs), limits.wait_s)
    open_ = managed & ~others & ~left_alone(jobs, (*snapshot.pins, *changed, *lost.values()))
    by_type = nodes_by_type(base, ranking.wants) if limits.types else {}
    typed = open_ & np.isin(np.arange(len(jobs)), list(by_type))
    wanted = open_ & _wanting(jobs, limits.pin) & ~typed
    verdict = np.where(wanted | typed, jobs_of.pin_verdicts(jobs, scope), -1).astype(np.int8)
    refused = jobs_of.refusals(snapshot, verdict, jobs_of.PIN_RULES)
    picked = wanted & (verdict < 0) & (snapshot.picking is not None)
    walk = Walk(Left(base, placement, _picks(base, limits, needed=bool(picked.any()))), mine)
    sent = typed & (verdict < 0)
    types = {row: nodes for row, nodes in by_type.items() if sent[row]}
    walk.go(ranking, Asked(picked, types, waits), limits.candidates)
    return _written(snapshot, limits, (mine, lost), changed, walk, (*refused, *walk.refused), most)


def _without(held: dict[int, Pin], others: Bools) -> dict[int, Pin]:
    return {row: pin for row, pin in held.items() if not others[row]}


def soon(snapshot: Snapshot, wait_s: float) -> Snapshot:
    """The snapshot in which jobs that were submitted to wait a moment for their place count as ready to start."""
    waits = _waiting(snapshot, wait_s)
    if not waits.any():
        return snapshot
    begin_s = np.where(waits, snapshot.now_s, snapshot.jobs.eligible_s)
    return replace(snapshot, jobs=snapshot.jobs.with_columns(eligible_s=begin_s))


def _waiting(snapshot: Snapshot, wait_s: float) -> Bools:
    """Jobs that may begin no more than wait_s after their submission, and not yet. A start of ours is no such wish:
    the policy wants the job later. (N,) bool."""
    jobs = own_starts(snapshot).jobs
    return jobs.pending & (jobs.eligible_s > snapshot.now_s) & (jobs.eligible_s - jobs.submit_s <= wait_s)


def _picks(snapshot: Snapshot, limits: Limits, *, needed: bool) -> Picks:
    if snapshot.picking is None or not needed:
        return Picks.unknown(snapshot)
    return Picks.of(snapshot, snapshot.picking, retype=limits.retype)


def _wanting(jobs: Jobs, pin: str) -> Bools:
    """Jobs whose nodes are to be chosen: by hint or, if so configured, all of two or more GPUs. (N,) bool."""
    topo = jobs.comment.map(lambda comment: parse_hints(comment).topo, object)
    hinted = np.array([value in LINKED_HINTS for value in topo], np.bool_)
    if pin == "multi-gpu":
        hinted |= np.array([value is None for value in topo], np.bool_)
    return hinted & (jobs.gpus > 1) & (pin != "off")


def _written(
    snapshot: Snapshot, limits: Limits, held: tuple[dict[int, Pin], dict[int, Pin]], changed: tuple[Pin, ...],
    found: Walk, refused: tuple[Refusal, ...], most: int,
) -> Pinned:  # fmt: skip
    """What is new, moved or given back, most urgent first; then what else changes on record. held: what `on_record`
    tells of jobs that hold all that we gave them, and of those of which somebody else changed a part."""
    mine, lost = held
    moves: list[tuple[tuple[Step, ...], Pin | None]] = [
        returned(snapshot, row, pin, pin.note, over=True) for row, pin in lost.items()
    ]
    chosen = dict(found.chosen)
    for row, pin in mine.items():
        late = snapshot.now_s - pin.since_s > limits.start_timeout_s
        if not late and row not in chosen and unknown(snapshot.topology, int(snapshot.jobs.nodes[row])):
            continue  # nothing speaks against its list
        if late or row not in chosen:
            chosen.pop(row, None)
            note = f"it did not start within {limits.start_timeout_s:g} s" if late else _MOVED
            moves.append(returned(snapshot, row, pin, note, over=late))
    waiting = _waiting(snapshot, limits.wait_s)
    for row in chosen:
        moves.append(_given(snapshot, row, found, mine.get(row), waits=bool(waiting[row])))
    fits = np.cumsum([len(steps) for steps, _ in moves]) <= most
    kept = [move for move, fit in zip(moves, fits, strict=True) if fit]
    actions = tuple(step for steps, _ in kept for step in steps)
    return Pinned(actions, refused, (*changed, *(record for _, record in kept if record)))


def _given(
    snapshot: Snapshot, row: int, found: Walk, before: Pin | None, *, waits: bool
) -> tuple[tuple[Step, ...], Pin | None]:
    """What gives the job its node and its request, and its record; less where it has them already."""
    key, act, name, why = key_of(snapshot, row), act_of(snapshot, row, sized=False), found.chosen[row], found.why[row]
    nodes, gpus = snapshot.jobs.nodes_asked[row], snapshot.jobs.gpu_request[row]
    before = before or Pin(*key, nodes, nodes, snapshot.now_s)
    before = before if before.rewritten else replace(before, gpus=gpus, own_gpus=gpus)
    request = found.request.get(row, before.own_gpus)
    steps: list[Step] = []
    if not (before.listed and same_hosts(nodes, name)):
        steps.append(PinNodes(*key, why, act, name, nodes, before.base, row in found.picked))
    if request != gpus:
        steps.append(Retype(*key, why, act, request, gpus, before.own_gpus))
    record = _record(before, name, request) if steps else None
    if waits:
        steps.append(Delay(*key, "its place is chosen, it need not wait longer", act, snapshot.now_s))
    return tuple(steps), record


def _record(before: Pin, name: str, request: str) -> Pin:
    """The record of a job that is to have this node and this request. Requests of ours stay on it until the job is seen
    with its own."""
    pin = replace(before, nodes=name, values=tuple(dict.fromkeys((*before.values, name))))
    if request == pin.own_gpus and not pin.requests:
        return replace(pin, gpus="", own_gpus="")
    requests = (*pin.requests, *((request,) if request != pin.own_gpus else ()))
    return replace(pin, gpus=request, requests=tuple(dict.fromkeys(requests)))
