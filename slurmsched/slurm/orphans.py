"""Reservations with our name that no act on record knows: its file was lost, or a host that is gone made them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from slurmsched.model.acts import RESERVATION_PREFIX, Act, Purpose, Reservations, Stage
from slurmsched.model.jobs import Jobs

_OURS = re.compile(rf"{RESERVATION_PREFIX}(?P<id>(?P<job>\d{{1,10}})-\d+)")


def orphans(jobs: Jobs, reservations: Reservations, known: Sequence[Act]) -> tuple[Act, ...]:
    """An act for each of them that only has to end: names off, reservation deleted.

    A reservation whose name is not of our form is somebody else's, whatever it begins with.
    """
    names = {act.reservation for act in known}
    rows = zip(reservations.name, reservations.node_list, reservations.users, strict=True)
    return tuple(
        _ending(jobs, found["id"], int(found["job"]), nodes, user)
        for name, nodes, user in rows
        if name not in names and (found := _OURS.fullmatch(name))
    )


def _ending(jobs: Jobs, act_id: str, job_id: int, nodes: str, user: str) -> Act:
    submitted_s = jobs.submit_s[np.flatnonzero(jobs.job_id == job_id)].tolist()
    submit_s = submitted_s[0] if submitted_s else 0.0
    return Act(act_id, Purpose.PREEMPT, job_id, submit_s, user, nodes, time_limit_s=0.0, begun_s=0.0,
               stage=Stage.REVERSING, note="no act on record has this reservation")  # fmt: skip
