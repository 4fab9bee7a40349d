"""The state of an operation in a snapshot: whether its job waits or runs, its reservation, and the victims that still
run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slurmsched.model.hostlists import expand_hostlist
from slurmsched.model.operations import Operation, OperationStage, Victim
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.states import HOLDS_NODES


@dataclass(frozen=True)
class OperationState:
    """What a snapshot shows of an operation. Nothing here remembers what was sent."""

    operation: Operation
    snapshot: Snapshot

    @property
    def on_record(self) -> bool:
        """Whether it began in an earlier cycle: one of this cycle was judged by this very snapshot."""
        return any(operation.id == self.operation.id for operation in self.snapshot.operations)

    @cached_property
    def beneficiary(self) -> int:
        """Row of the job it is for, -1 when that is gone: left the queue, or was requeued itself."""
        return job_row(self.snapshot, self.operation.job_id, self.operation.submit_s)

    @cached_property
    def runs(self) -> bool:
        """Whether the beneficiary is running or suspended."""
        return self.beneficiary >= 0 and bool(self.snapshot.jobs.state[self.beneficiary] & int(HOLDS_NODES))

    @cached_property
    def waits(self) -> bool:
        """It is pending, and neither user nor admin holds it."""
        jobs, row = self.snapshot.jobs, self.beneficiary
        return row >= 0 and bool(jobs.pending[row]) and not bool(jobs.held[row])

    @cached_property
    def named(self) -> int:
        """Row of the job under the beneficiary's id, whatever run of it, that names the reservation; -1: none does.

        One that is over does not count: it keeps the reservation from nothing, and takes no update any more.
        """
        row, jobs = job_row(self.snapshot, self.operation.job_id), self.snapshot.jobs
        named = row >= 0 and not jobs.finished[row] and jobs.reservation[row] == self.operation.reservation
        return row if named else -1

    @cached_property
    def naming(self) -> tuple[int, ...]:
        """Rows of all jobs that name its reservation and are not over: users may send other jobs there, and Slurm
        deletes none that a job names."""
        jobs = self.snapshot.jobs
        return tuple(np.flatnonzero(jobs.reservation.isin((self.operation.reservation,)) & ~jobs.finished).tolist())

    @cached_property
    def reservation_row(self) -> int:
        """Row of its reservation, -1: there is none."""
        rows = np.flatnonzero(self.snapshot.reservations.name.isin((self.operation.reservation,)))
        return int(rows[0]) if len(rows) else -1

    @property
    def reserved(self) -> bool:
        """Whether Slurm has its reservation."""
        return self.reservation_row >= 0

    @property
    def left_behind(self) -> bool:
        """Whether Slurm says that its reservation has not begun, though by our clock it has: clocks were set back since
        it was made, or slurmctld's is behind ours."""
        return self.to_come and self.operation.opens_s <= self.snapshot.now_s

    @property
    def to_come(self) -> bool:
        """Whether Slurm says that its reservation has not begun."""
        return self.reserved and bool(self.snapshot.reservations.to_come[self.reservation_row])

    @property
    def idle_gpus(self) -> int:
        """GPUs that are free on the nodes of its reservation, while its job does not run there."""
        if not self.reserved or self.runs:
            return 0
        nodes = self.snapshot.nodes
        here = nodes.name.isin(expand_hostlist(self.operation.nodes)) & ~nodes.down
        return int(np.maximum(nodes.gpus - nodes.gpus_used, 0)[here].sum())

    @cached_property
    def closed(self) -> str:
        """The first of its nodes that takes no new job now, "": all do."""
        nodes = self.snapshot.nodes
        found = np.flatnonzero(nodes.name.isin(expand_hostlist(self.operation.nodes)) & nodes.closed)
        return nodes.name[int(found[0])] if len(found) else ""

    @property
    def graced(self) -> bool:
        """Whether the grace of a victim is not over."""
        return (
            self.operation.stage == OperationStage.WARNED
            and self.snapshot.now_s - self.operation.stage_s < self.grace_s
        )

    @property
    def late_s(self) -> float:
        """How long ago the remaining victims should have been signalled or requeued [s]."""
        asks = self.remaining and self.operation.stage in (OperationStage.BEGUN, OperationStage.WARNED)
        return self.snapshot.now_s - max(self.operation.begun_s, self.operation.stage_s) - self.grace_s if asks else 0.0

    @property
    def grace_s(self) -> float:
        """The longest grace of the remaining victims [s]."""
        return max((victim.grace_s for victim in self.remaining if victim.signal), default=0.0)

    @cached_property
    def remaining(self) -> tuple[Victim, ...]:
        """Victims whose chosen run still has its GPUs and has not been requeued."""
        return tuple(victim for victim in self.operation.victims if self._goes_on(victim))

    @cached_property
    def put_off(self) -> tuple[Victim, ...]:
        """Victims that wait for nothing but the time Slurm lets pass after a requeue.

        Slurm gives the reason with its next scheduling pass only; until then there is none, and the time alone tells.
        """
        return tuple(victim for victim in self.operation.victims if self._waits_for_begin(victim))

    def _goes_on(self, victim: Victim) -> bool:
        jobs, row = self.snapshot.jobs, job_row(self.snapshot, victim.job_id, victim.submit_s)
        return row >= 0 and bool(jobs.state[row] & int(HOLDS_NODES)) and int(jobs.restarts[row]) == victim.restarts

    def _waits_for_begin(self, victim: Victim) -> bool:
        jobs, row = self.snapshot.jobs, job_row(self.snapshot, victim.job_id)
        if row < 0 or not jobs.pending[row] or int(jobs.restarts[row]) != victim.restarts + 1:
            return False
        later = not jobs.eligible_s[row] <= self.snapshot.now_s  # else the reason is one of before: its time has come
        return bool(later) and jobs.reason[row] in ("", "None", "BeginTime")


def job_row(snapshot: Snapshot, job_id: int, submit_s: float | None = None) -> int:
    """Row of a job, -1 if there is none, or none of this submission."""
    row = snapshot.jobs.row_of(job_id)
    same = row >= 0 and (submit_s is None or abs(float(snapshot.jobs.submit_s[row]) - submit_s) < 1)
    return row if same else -1
