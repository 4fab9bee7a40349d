"""All levers back to their base, for every value that is on record as ours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from slurmsched.model import Jobs, Plan, Refusal, Snapshot
from slurmsched.model.plan import Action
from slurmsched.planning.levers import LEVERS
from slurmsched.protocols import LeverRecord


def undo_plan(snapshot: Snapshot, records: Iterable[LeverRecord]) -> Plan:
    """Actions that give each unfinished job its base back. records: oldest first; the last base counts.

    A job that holds a value we never sent was changed by somebody else since: it is left alone and told. One whose
    value Slurm does not show gets its base if that was not the last one sent. Tasks are written with their array; one
    that has another value of its own than that gets it again right behind.
    """
    actions: list[Action] = []
    refused: list[Refusal] = []
    jobs, written = snapshot.jobs, dict[tuple[int, str], int]()
    hidden = {kind: lever.hidden(jobs) for kind, lever in LEVERS.items()}
    for row, kind, base, values, last in _known(jobs, records):
        lever = LEVERS[kind]
        now = int(lever.now(jobs)[row])
        ours = (last if hidden[kind][row] else now) in values - {base}
        leader = (int(jobs.leader[row]), kind)
        if leader in written:  # Slurm gives the task what its array gets
            own = base if ours or hidden[kind][row] else now
            if jobs.array_job_id[row] and own != written[leader]:
                action = lever.action(jobs, row, own, "undo: its own value, other than that of its array")
                actions.append(replace(action, base=own))
        elif ours:
            action = lever.action(jobs, row, base, "undo: back to the base value")
            actions.append(replace(action, base=base))
            written[action.job_id, kind] = base
        elif now != base:
            reason = f"its {kind} is {now}, which slurmsched never wrote: somebody changed it since"
            refused.append(Refusal(int(snapshot.jobs.job_id[row]), "foreign", reason))
    return Plan(actions=tuple(actions), refused=tuple(refused))


class _Told(NamedTuple):
    """What the records tell of one lever of the job in a row."""

    row: int
    kind: str
    base: int
    values: frozenset[int]
    last: int


def _known(jobs: Jobs, records: Iterable[LeverRecord]) -> list[_Told]:
    """Levers on record of the jobs in the queue; arrays and het leaders before their tasks.

    A job without a record of its own goes by its leader's. A requeue moves the submit time; an id used again has no
    restarts.
    """
    of_id: dict[tuple[int, str], list[LeverRecord]] = {}
    for record in records:
        of_id.setdefault((record.job_id, record.kind), []).append(record)
    told = [job_id for job_id, _ in of_id]
    live = ~jobs.finished & (np.isin(jobs.job_id, told) | np.isin(jobs.leader, told))
    found: list[_Told] = []
    for row in np.flatnonzero(live).tolist():
        for kind in LEVERS:
            own = of_id.get((int(jobs.job_id[row]), kind)) or of_id.get((int(jobs.leader[row]), kind), [])
            same = [each for each in own if jobs.restarts[row] > 0 or jobs.submit_s[row] == each.submit_s]
            if same:
                values = frozenset[int]().union(*(each.values for each in same))
                found.append(_Told(row, kind, same[-1].base, values, same[-1].last))
    follows = (jobs.leader > 0) & (jobs.leader != jobs.job_id)
    return sorted(found, key=lambda told: (bool(follows[told.row]), told.row, told.kind))
