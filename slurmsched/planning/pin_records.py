"""The node lists, requests and sizes that jobs have by us: what is still theirs, and what gives it back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurmsched.model import Pin, PinNodes, Retype, Snapshot, Step
from slurmsched.model.columns import Bools, Labels
from slurmsched.model.hostlist import same_hosts
from slurmsched.model.jobs import Jobs
from slurmsched.planning.parts import Pinned

_FOREIGN = "its request is another one: somebody changed it, or Slurm did not take ours"


def sized(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the records of sizes alone."""
    return replace(snapshot, pins=tuple(pin for pin in snapshot.pins if pin.sized))


def unsized(snapshot: Snapshot) -> Snapshot:
    """The snapshot without the records of sizes."""
    return replace(snapshot, pins=tuple(pin for pin in snapshot.pins if not pin.sized))


def given_back(snapshot: Snapshot, note: str) -> Pinned:
    """Every job its own node list and request, as `undo` does. One that holds none of ours any more is left alone."""
    mine, lost, changed = on_record(snapshot)
    back = [returned(snapshot, row, pin, note, over=False) for row, pin in (mine | lost).items()]
    steps = tuple(step for actions, _ in back for step in actions)
    return Pinned(steps, (), (*changed, *(pin for _, pin in back)))


def on_record(snapshot: Snapshot) -> tuple[dict[int, Pin], dict[int, Pin], tuple[Pin, ...]]:
    """Pending jobs that hold what we gave them, by row; those of which somebody else changed the list or the request,
    with what they still hold of ours; and records that change by themselves: of jobs that wait again after a requeue,
    which keeps both, of those that have their own request again, of those given when the clock was further on, and of
    those that hold nothing of ours any more."""
    jobs, mine, lost, changed = snapshot.jobs, dict[int, Pin](), dict[int, Pin](), list[Pin]()
    for pin in snapshot.pins:
        row = jobs.row_of(pin.job_id)
        if not pin.open or row < 0 or not jobs.pending[row]:
            continue
        now = _held(_waiting_anew(snapshot, row, pin), jobs.gpu_request[row])
        left = _left(jobs, row, now)
        kept = left if left and not left.open else now
        if kept != pin:
            changed.append(kept)
        if left is None:
            mine[row] = now
        elif left.open:
            lost[row] = left
    return mine, lost, tuple(changed)


def untouched(snapshot: Snapshot, *, sizes: bool) -> Bools:
    """Jobs that the other part has on record, open or over, or for which an act is under way: sizes, or lists and
    Types, leave them as they are, so that a job has one kind of record at most. (N,) bool."""
    others = tuple(pin for pin in snapshot.pins if pin.sized != sizes)
    ids = [*(act.job_id for act in snapshot.acts), *(pin.job_id for pin in others if pin.open)]
    return np.isin(snapshot.jobs.job_id, ids) | left_alone(snapshot.jobs, others)


def _waiting_anew(snapshot: Snapshot, row: int, pin: Pin) -> Pin:
    """The record by the job's submission: after a requeue it is no more left alone for what was before. One of a time
    to come, since the clock was set back, is of now."""
    submit_s = float(snapshot.jobs.submit_s[row])
    if pin.submit_s == submit_s:
        return replace(pin, since_s=min(pin.since_s, snapshot.now_s))
    return replace(pin, submit_s=submit_s, since_s=snapshot.now_s, over=False, note="")


def _held(pin: Pin, gpus: str) -> Pin:
    """The record by the request that the job has, where its own was to be written while it keeps a list: one of ours
    is there still, as the write did not reach Slurm; any other is its user's, and from then on every one is."""
    if pin.rewritten or not pin.requests:
        return pin
    if gpus in pin.requests:
        return replace(pin, gpus=gpus)
    return replace(pin, gpus="", own_gpus="", requests=())


def _left(jobs: Jobs, row: int, pin: Pin) -> Pin | None:
    """What is left of a pin that somebody else changed; None if nobody did."""
    nodes = pin.nodes if _has_list(jobs.nodes_asked[row], pin) else pin.base
    gpus = pin.gpus if _has_request(jobs.gpu_request[row], pin) else pin.own_gpus
    if (nodes, gpus) == (pin.nodes, pin.gpus):
        return None
    what = "node list" if nodes != pin.nodes else "request"
    note = pin.note if pin.over else _FOREIGN if pin.sized else f"somebody else changed its {what}"
    return replace(pin, nodes=nodes, gpus=gpus, over=True, note=note)


def _has_list(nodes: str, pin: Pin) -> bool:
    return any(same_hosts(nodes, ours) for ours in (pin.nodes, *pin.values))


def _has_request(gpus: str, pin: Pin) -> bool:
    return not pin.rewritten or gpus in (pin.gpus, *pin.requests)


def own_lists(snapshot: Snapshot) -> Jobs:
    """The jobs with the node lists and requests that their users gave them, whatever state they are in."""
    base = {pin.job_id: pin for pin in snapshot.pins if pin.open and not pin.sized}
    jobs = snapshot.jobs
    rows = np.flatnonzero(np.isin(jobs.job_id, list(base))).tolist()
    lists, requests = (list(jobs.nodes_asked), list(jobs.gpu_request)) if rows else ([], [])
    for row in rows:
        pin = _held(base[int(jobs.job_id[row])], requests[row])
        if _has_list(lists[row], pin):
            lists[row] = pin.base
        if pin.rewritten and _has_request(requests[row], pin):
            requests[row] = pin.own_gpus
    return jobs.with_columns(nodes_asked=Labels.of(lists), gpu_request=Labels.of(requests)) if rows else jobs


def left_alone(jobs: Jobs, pins: tuple[Pin, ...]) -> Bools:
    """Jobs that are left to Slurm until they run. (N,) bool."""
    over = {(pin.job_id, pin.submit_s) for pin in pins if pin.over}
    keys = zip(jobs.job_id.tolist(), jobs.submit_s.tolist(), strict=True) if over else ()
    return np.array([key in over for key in keys], np.bool_) if over else np.zeros(len(jobs), np.bool_)


def returned(snapshot: Snapshot, row: int, pin: Pin, note: str, *, over: bool) -> tuple[tuple[Step, ...], Pin]:
    key, act, jobs = key_of(snapshot, row), act_of(snapshot, row, sized=pin.sized), snapshot.jobs
    steps: list[Step] = [PinNodes(*key, note, act, pin.base, jobs.nodes_asked[row], pin.base)] if pin.listed else []
    if pin.rewritten:
        steps.append(Retype(*key, note, act, pin.own_gpus, jobs.gpu_request[row], pin.own_gpus, pin.sized))
    return tuple(steps), replace(pin, submit_s=key[1], nodes=pin.base, gpus=pin.own_gpus, over=over, note=note)


def act_of(snapshot: Snapshot, row: int, *, sized: bool) -> str:
    """Under which name the ledger has the steps of a job."""
    return f"{'size' if sized else 'pin'}-{snapshot.jobs.job_id[row]}"


def key_of(snapshot: Snapshot, row: int) -> tuple[int, float]:
    return int(snapshot.jobs.job_id[row]), float(snapshot.jobs.submit_s[row])
