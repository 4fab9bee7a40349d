"""GPUs of pending jobs as the policy wants them: `Wants.gpus` written as the job's own request, within its hints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slurmsched.config import Lever, Scope
from slurmsched.model import Pin, Ranking, Refusal, Retype, Snapshot
from slurmsched.model.columns import Bools, Labels
from slurmsched.model.hints import hint_column
from slurmsched.model.pins import counted
from slurmsched.placements.candidates import eligible
from slurmsched.planning import managed as jobs_of
from slurmsched.planning.bounds import UnknownForm, allowed_nodes
from slurmsched.planning.deferrals import own_starts
from slurmsched.planning.parts import Pinned
from slurmsched.planning.pin_records import act_of, key_of, left_alone, on_record, returned, sized, untouched
from slurmsched.resources.free import JobRequirements
from slurmsched.words import some

Move = tuple[Retype, Pin]
_LIMIT = "it waits for a limit that its own request may meet"


def own_sizes(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which pending jobs ask for as many GPUs as their users say: what a policy looks at."""
    mine, _, _ = on_record(sized(snapshot))
    if not mine:
        return snapshot
    gpus, requests = snapshot.jobs.gpus.copy(), list(snapshot.jobs.gpu_request)
    for row, pin in mine.items():
        gpus[row], requests[row] = counted(pin.own_gpus), pin.own_gpus
    return replace(snapshot, jobs=snapshot.jobs.with_columns(gpus=gpus, gpu_request=Labels.of(requests)))


def sizes(snapshot: Snapshot, ranking: Ranking, managed: Bools, lever: Lever, scope: Scope, most: int = 500) -> Pinned:
    """Requests to give, to change and to give back. snapshot: as read. managed: (N,) bool. most: writes of this cycle.

    Of jobs of one node that tell both min_gpus and max_gpus, if the policy wants another size between these for which
    some node has GPUs. One with an act under way, or with a node list or Type on record, is left as it is. Requests
    are given back first, then changed, then given to new jobs, most urgent first.
    """
    mine, _, changed = on_record(sized(snapshot))
    others = untouched(snapshot, sizes=True)
    mine = {row: _limited(snapshot, row, pin) for row, pin in mine.items() if not others[row]}
    base = own_sizes(own_starts(snapshot))
    over = others | left_alone(snapshot.jobs, (*sized(snapshot).pins, *changed, *mine.values()))
    wants, refused = _wanted(base, ranking, managed & ~over, scope) if lever.size else ({}, ())
    new = {row: request for row, request in wants.items() if row not in mine}
    moves = [*_kept(snapshot, mine, wants), *(_given(snapshot, row, request, None) for row, request in new.items())]
    moves = moves[: max(most, 0)]
    return Pinned(tuple(step for step, _ in moves), refused, (*changed, *(pin for _, pin in moves)))


def _wanted(
    base: Snapshot, ranking: Ranking, managed: Bools, scope: Scope
) -> tuple[dict[int, str], tuple[Refusal, ...]]:
    """Requests of the jobs that are to have another size than they ask for, by row, most urgent first; and why others
    are not."""
    gpus = ranking.wants.gpus if ranking.wants else None
    if gpus is None:
        return {}, ()
    jobs = base.jobs
    within = (gpus >= hint_column(jobs, "min_gpus")) & (gpus <= hint_column(jobs, "max_gpus"))  # NaN: no hint
    asked = managed & eligible(base) & (gpus > 0) & (gpus != jobs.gpus) & within
    asked &= ~((gpus > jobs.gpus) & jobs.reason.map(_at_limit, np.bool_))
    verdict = np.where(asked, jobs_of.size_verdicts(jobs, scope), -1).astype(np.int8)
    rows = ranking.order[(asked & (verdict < 0))[ranking.order]].tolist()
    most = _largest(base, rows)
    found = {row: f"{jobs.gpu_request[row].rpartition(':')[0]}:{gpus[row]}" for row in rows if gpus[row] <= most[row]}
    small = (Refusal(int(jobs.job_id[row]), "size-room", f"no node that it may have has {some(gpus[row], 'GPU')}")
             for row in rows if row not in found)  # fmt: skip
    return found, (*jobs_of.refusals(base, verdict, jobs_of.SIZE_RULES), *small)


def _largest(base: Snapshot, rows: Sequence[int]) -> dict[int, int]:
    """Most GPUs of an open node that each of these jobs may have once its partition is up, and that has its CPUs and
    memory; by row, 0 if that is not known. Slurm takes any number."""
    jobs, parts = base.jobs, base.partitions
    up = replace(base, partitions=parts.with_columns(up=np.ones(len(parts), np.bool_)))
    columns = (jobs.partition, jobs.gpu_request, jobs.features_asked, jobs.nodes_asked, jobs.nodes_excluded,
               jobs.cpus, jobs.memory_mib)  # fmt: skip
    known: dict[tuple[object, ...], int] = {}
    found = {}
    for row in rows:
        key = tuple(column[row] for column in columns)
        if key not in known:
            known[key] = _most(up, row)
        found[row] = known[key]
    return found


def _most(base: Snapshot, row: int) -> int:
    roomy = replace(JobRequirements.of(base, row), gpus=np.zeros(len(base.nodes), np.int64)).fits_empty(
        base
    )  # by CPUs and memory
    try:
        return int(base.nodes.gpus[allowed_nodes(base, row, sized=False) & roomy].max(initial=0))
    except UnknownForm:
        return 0


def _kept(snapshot: Snapshot, mine: dict[int, Pin], wants: dict[int, str]) -> list[Move]:
    """What changes of the sizes that jobs have by us: those given back, then those changed."""
    rows = sorted(mine, key=lambda row: row in wants)
    moves = [_given(snapshot, row, wants[row], mine[row]) if row in wants else _back(snapshot, row, mine[row])
             for row in rows]  # fmt: skip
    return [move for move in moves if move[0].gpus != move[0].was]


def _limited(snapshot: Snapshot, row: int, pin: Pin) -> Pin:
    """The record, over if its size may be why the job waits for a limit: Slurm checks none when an Operator writes."""
    reason, more = snapshot.jobs.reason[row], counted(pin.gpus) > counted(pin.own_gpus)
    limit = _at_limit(reason) if more else "MinGRES" in reason
    return replace(pin, over=True, note=_LIMIT) if limit and not pin.over else pin


def _at_limit(reason: str) -> bool:
    """Whether Slurm says that an association or QOS lets a job have no more GPUs, such as QOSMaxGRESPerUser."""
    return "GRES" in reason or "Billing" in reason


def _back(snapshot: Snapshot, row: int, pin: Pin) -> Move:
    note = pin.note if pin.over else "the policy wants it as it asks"
    (step,), record = returned(snapshot, row, pin, note, over=pin.over)
    assert isinstance(step, Retype)
    return step, record


def _given(snapshot: Snapshot, row: int, request: str, before: Pin | None) -> Move:
    """The write, and the record that still knows of the requests before."""
    jobs, key = snapshot.jobs, key_of(snapshot, row)
    nodes, has = jobs.nodes_asked[row], jobs.gpu_request[row]
    pin = before or Pin(*key, nodes, nodes, snapshot.now_s, gpus=has, own_gpus=has)
    why = f"the policy wants it on {counted(request)} of the GPUs that its hints allow"
    step = Retype(*key, why, act_of(snapshot, row, sized=True), request, has, pin.own_gpus, resizes=True)
    return step, replace(pin, gpus=request, requests=tuple(dict.fromkeys((*pin.requests, request))))
