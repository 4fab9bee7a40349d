"""Reservations with our name that no act on record knows: its file was lost, or a host that is gone made them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurmsched.model.acts import RESERVATION_PREFIX, Act, Purpose, Reservations, Stage
from slurmsched.model.jobs import Jobs
from slurmsched.slurm.reservations import orphan_names


def orphans(jobs: Jobs, reservations: Reservations, known: Sequence[Act], tag: str) -> tuple[Act, ...]:
    """An act for each of them that only has to end: names off, reservation deleted.

    A reservation whose name is not of our form, or has another tag, is somebody else's, whatever it begins with.
    """
    left = set(orphan_names(reservations, known, tag))
    rows = zip(reservations.name, reservations.node_list, reservations.users, strict=True)
    return tuple(_ending(jobs, name, nodes, user) for name, nodes, user in rows if name in left)


def _ending(jobs: Jobs, name: str, nodes: str, user: str) -> Act:
    act_id = name.removeprefix(RESERVATION_PREFIX)
    job_id = int(act_id.split("-")[-2])
    submitted_s = jobs.submit_s[np.flatnonzero(jobs.job_id == job_id)].tolist()
    submit_s = submitted_s[0] if submitted_s else 0.0
    return Act(act_id, Purpose.PREEMPT, job_id, submit_s, user, nodes, time_limit_s=0.0, begun_s=0.0,
               stage=Stage.REVERSING, note="no act on record has this reservation")  # fmt: skip
