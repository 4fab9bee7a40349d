"""Jobs that left the scope with a lever value of ours: they get their own back, or they would pass all others there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurmsched.config import Scope
from slurmsched.model import SetNice, SetSiteFactor, Snapshot
from slurmsched.model.columns import Bools, Int64s
from slurmsched.planning.levers import AnyLever
from slurmsched.planning.notes import unknown_partitions

OWN = "its own again: it is not in scope any more"


def left_scope(
    snapshot: Snapshot, scope: Scope, lever: AnyLever, out: Bools
) -> tuple[SetNice | SetSiteFactor, ...]:  # fmt: skip
    """Writes that give waiting jobs out of scope their base back, in order of their ids. out: managed.out_of_scope.

    A job leaves the scope when its user moves it to another partition, account or QOS, or an admin shortens a list.
    Only values on record as ours count: what somebody else set stays. Tasks and components follow their leader. While
    the scope names a partition that Slurm does not know nothing goes back: it may be a slip of the pen.
    """
    if unknown_partitions(snapshot, scope):
        return ()
    jobs = snapshot.jobs
    own = lever.value(jobs, np.zeros(len(jobs), np.int64))
    rows = np.flatnonzero(jobs.written & out & (lever.now(jobs) != own)).tolist()
    return tuple(lever.action(jobs, row, int(own[row]), OWN) for row in rows)


def shown(snapshot: Snapshot, wanted: Int64s, back: Sequence[SetNice | SetSiteFactor]) -> Int64s:
    """The wanted values with those that go back. (N,) int64."""
    values = wanted.copy()
    values[np.searchsorted(snapshot.jobs.job_id, [action.job_id for action in back])] = [each.new for each in back]
    return values
