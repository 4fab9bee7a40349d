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


def undo_plan(snapshot: Snapshot, records: Iterable[LeverRecord]) -> Plan:
    """Actions that give each unfinished job its base back. records: oldest first; the last base counts.

    A job that holds a value we never sent was changed by somebody else since: it is left alone and told.
    """
    actions: list[Action] = []
    refused: list[Refusal] = []
    for (row, kind), (base, values) in sorted(_by_row(snapshot.jobs, records).items()):
        lever = LEVERS[kind]
        now = int(lever.now(snapshot.jobs)[row])
        if now in values and now != base:
            action = lever.action(snapshot.jobs, row, base, "undo: back to the base value")
            actions.append(replace(action, base=base))
        elif now != base:
            reason = f"its {kind} is {now}, which slurmsched never wrote: somebody changed it since"
            refused.append(Refusal(int(snapshot.jobs.job_id[row]), "foreign", reason))
    return Plan(actions=tuple(actions), refused=tuple(refused))


def _by_row(jobs: Jobs, records: Iterable[LeverRecord]) -> dict[tuple[int, str], tuple[int, frozenset[int]]]:
    """Base and values by (row, lever kind). A requeue moves the submit time; an id used again has no restarts."""
    rows = {int(jobs.job_id[row]): row for row in np.flatnonzero(~jobs.finished).tolist()}
    found: dict[tuple[int, str], tuple[int, frozenset[int]]] = {}
    for record in records:
        row = rows.get(record.job_id)
        if row is None or (jobs.restarts[row] == 0 and jobs.submit_s[row] != record.submit_s):
            continue
        _, values = found.get((row, record.kind), (0, frozenset()))
        found[row, record.kind] = (record.base, values | record.values)
    return found
