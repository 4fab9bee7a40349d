"""All levers back to their base, for every value that is on record as ours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

import numpy as np

from slurmsched.model import Jobs, Plan, Refusal, Snapshot
from slurmsched.model.plan import Action
from slurmsched.planning.levers import LEVERS


class LeverRecord(Protocol):
    """What journal or ledger know of one lever of one job."""

    @property
    def job_id(self) -> int: ...
    @property
    def submit_s(self) -> float: ...
    @property
    def kind(self) -> str:
        """ "nice" or "site_factor"."""
        ...

    @property
    def base(self) -> int:
        """The user's own part."""
        ...

    @property
    def values(self) -> frozenset[int]:
        """Every value ever sent, or about to be."""
        ...

    @property
    def last(self) -> int:
        """The latest of them."""
        ...


def undo_plan(snapshot: Snapshot, records: Iterable[LeverRecord]) -> Plan:
    """Actions that give each unfinished job its base back. records: oldest first; the last base counts.

    A job that holds a value we never sent was changed by somebody else since: it is left alone and told. One whose
    value Slurm does not show gets its base if that was not the last one sent. Tasks are written with their array.
    """
    actions: list[Action] = []
    refused: list[Refusal] = []
    jobs, written = snapshot.jobs, set[tuple[int, str]]()
    hidden = {kind: lever.hidden(jobs) for kind, lever in LEVERS.items()}
    for row, kind, base, values, last in _known(jobs, records):
        lever = LEVERS[kind]
        now = int(lever.now(jobs)[row])
        ours = last != base if hidden[kind][row] else now in values and now != base
        if ours:
            if (int(jobs.leader[row]), kind) not in written:
                action = lever.action(jobs, row, base, "undo: back to the base value")
                actions.append(replace(action, base=base))
                written.add((action.job_id, kind))
        elif now != base:
            reason = f"its {kind} is {now}, which slurmsched never wrote: somebody changed it since"
            refused.append(Refusal(int(snapshot.jobs.job_id[row]), "foreign", reason))
    return Plan(actions=tuple(actions), refused=tuple(refused))


def _known(jobs: Jobs, records: Iterable[LeverRecord]) -> list[tuple[int, str, int, frozenset[int], int]]:
    """Row, lever kind, base, values and last value of each job on record; arrays and het leaders before their tasks.

    A job without a record of its own goes by its leader's. A requeue moves the submit time; an id used again has no
    restarts.
    """
    of_id: dict[tuple[int, str], list[LeverRecord]] = {}
    for record in records:
        of_id.setdefault((record.job_id, record.kind), []).append(record)
    told = [job_id for job_id, _ in of_id]
    live = ~jobs.finished & (np.isin(jobs.job_id, told) | np.isin(jobs.leader, told))
    found = []
    for row in np.flatnonzero(live).tolist():
        for kind in LEVERS:
            own = of_id.get((int(jobs.job_id[row]), kind)) or of_id.get((int(jobs.leader[row]), kind), [])
            same = [each for each in own if jobs.restarts[row] > 0 or jobs.submit_s[row] == each.submit_s]
            if same:
                values = frozenset[int]().union(*(each.values for each in same))
                found.append((row, kind, same[-1].base, values, same[-1].last))
    return sorted(found, key=lambda each: (jobs.leader[each[0]] not in (0, jobs.job_id[each[0]]), each[0], each[1]))
