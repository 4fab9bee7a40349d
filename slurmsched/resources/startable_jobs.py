"""Which jobs hold GPUs, which could start now, and which wait for something other than GPUs."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from slurmsched.kernels.free_gpus import standing_of, wanted_of
from slurmsched.model import JobState, Snapshot
from slurmsched.model.columns import Bools, Int64s, made_read_only
from slurmsched.model.jobs import Jobs
from slurmsched.model.reasons import Blocker, read_reason
from slurmsched.model.states import HELD, HOLDS_NODES
from slurmsched.resources.allocated import allocated_whole_gpus

# Of a job in several partitions Slurm tells the reason of the one that it tried last.
OF_PARTITION = frozenset({Blocker.PARTITION_LIMIT, Blocker.PARTITION_CLOSED, Blocker.CONSTRAINTS})
NOT_GPUS = OF_PARTITION | {
    Blocker.LIMIT, Blocker.ARRAY_LIMIT, Blocker.LICENSES, Blocker.NOT_ALLOWED, Blocker.DATA, Blocker.POWER,
    Blocker.FEDERATION,
}  # fmt: skip


def not_waiting_for_gpus(jobs: Jobs) -> Bools:
    """Pending jobs that would not start on free GPUs either, by the reason of Slurm's last look. (N,) bool."""
    several = jobs.partition.map(lambda listed: "," in listed, np.bool_)
    of_partition = jobs.reason.map(lambda reason: read_reason(reason).blocker in OF_PARTITION, np.bool_)
    found: Bools = jobs.pending & jobs.reason.map(is_not_for_gpus, np.bool_) & ~(several & of_partition)
    return found


def is_not_for_gpus(reason: str) -> bool:
    """Whether free GPUs would not help a job that waits for this reason. Holds, dependencies and begin times are no
    matter of the reason: other columns tell them."""
    return read_reason(reason).blocker in NOT_GPUS


_FLAGS = (int(JobState.PENDING), int(HOLDS_NODES), int(JobState.COMPLETING))
MAY_START, HOLDS = 1, 2


@lru_cache(maxsize=1)  # planner and placement of one cycle both ask
def job_standing(snapshot: Snapshot) -> Int64s:
    """Whether each job holds GPUs or could get some. (N,) int64:

    - HOLDS: it holds GPUs by itself (running or suspended, not completing).
    - MAY_START: it could start now (pending, not held, not delayed, no open dependency or reservation).
    - 0: neither.
    """
    jobs = snapshot.jobs
    found = np.empty(len(jobs), np.int64)
    standing_of(jobs.state, jobs.priority, jobs.eligible_s, snapshot.now_s, _FLAGS, found)
    for column in (jobs.dependency, jobs.reservation):
        if column.names not in ((), ("",)):
            found[(found == MAY_START) & ~column.isin([""])] = 0
    found[(found == MAY_START) & jobs.is_state(HELD)] = 0
    return made_read_only(found)


def startable(snapshot: Snapshot) -> Bools:
    """Jobs that could start now (see job_standing). (N,) bool."""
    return job_standing(snapshot) == MAY_START


def requested_gpus(snapshot: Snapshot, stands: Int64s) -> Int64s:
    """GPUs each job holds, or asks for if it may start; 0 for the others. (J,) int64. stands: of job_standing."""
    jobs, allocations = snapshot.jobs, snapshot.allocations
    found: Int64s = wanted_of(jobs.job_id, stands, jobs.gpus, allocations.job_id, allocated_whole_gpus(snapshot))
    return found


def waits_for_nodes_alone(snapshot: Snapshot) -> Bools:
    """Pending jobs that wait only for nodes: not for a user, limit, other job, reservation or begin time. (N,) bool."""
    jobs = snapshot.jobs
    later = (jobs.eligible_s > snapshot.now_s) | jobs.reason.map(_is_for_reservation, np.bool_)
    found: Bools = jobs.pending & ~jobs.held & jobs.dependency.isin([""]) & ~later & ~not_waiting_for_gpus(jobs)
    return found


def _is_for_reservation(reason: str) -> bool:
    return read_reason(reason).code in ("Reservation", "ReservationInvalid", "ReservationDeleted")
