"""Operations: what takes several cycles, from the reservation for one job to the clean end. Live in the journal."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from slurmsched.model.columns import Bools, Floats, Labels, Table, column, text_column
from slurmsched.model.jobs import NAN
from slurmsched.plain_text import pluralize

RESERVATION_PREFIX = "slurmsched-"  # of every reservation that is ours to delete


class OperationStage(StrEnum):
    """How far an operation has come. What is really there is read from Slurm each time; the stage says what was
    meant."""

    BEGUN = "begun"  # nodes are being reserved; victims have heard nothing
    PROMISED = "promised"  # nodes are reserved from a time to come on; until then the beneficiary may start elsewhere
    WARNED = "warned"  # checkpoint signals are sent, their grace runs
    REQUEUED = "requeued"  # victims, if any, were told to go; the beneficiary starts when the last job has left
    CLEANING = "cleaning"  # it runs, or needs nothing any more: names off, reservation deleted
    REVERSING = "reversing"  # given up: as cleaning, and the beneficiary waits as before
    CLOSED = "closed"


class Purpose(StrEnum):
    """preempt: victims give their GPUs. reserve: nodes are kept for a gang until running jobs end."""

    PREEMPT = "preempt"
    RESERVE = "reserve"


@dataclass(frozen=True, slots=True)
class Victim:
    """A run that gives its GPUs back; another run of the same job is not meant.

    signal: "" = none is sent.
    grace_s: from the signal to the requeue [s].
    lost_gpu_s: work that is lost, as estimated.
    cost_by: by what the cost of its restart is known, as text.
    """

    job_id: int
    submit_s: float
    restarts: int
    gpus: int
    signal: str = ""
    grace_s: float = 0.0
    lost_gpu_s: float = 0.0
    cost_by: str = ""

    @property
    def loses(self) -> str:
        """What it loses, as text for people."""
        by = f", a restart by {self.cost_by}" if self.cost_by else ""
        return f"loses about {self.lost_gpu_s / max(self.gpus, 1):.0f} s of work on {pluralize(self.gpus, 'GPU')}{by}"


@dataclass(frozen=True, slots=True)
class NodeWait:
    """What a node that is kept waits for: the last job that must leave it, 0 = none, it is ready. until_s [Unix s]."""

    node: str
    job_id: int
    until_s: float


@dataclass(frozen=True, slots=True)
class Operation:
    """One job gets nodes of its own, now (preempt) or at promised_s (reserve) [Unix s].

    nodes: hostlist.
    time_limit_s: of the job, which the reservation must outlast.
    opens_s: when the reservation of a gang reservation begins [Unix s], the kill wait before promised_s, by when the
        last job must have left.
    waits: what its nodes wait for, as last seen.
    stage_s: since when it is in its stage [Unix s].
    idle_gpu_s: GPU seconds that were free on its nodes while it kept them, up to seen_s.
    note: why it was given up, for people.
    sure: False for one whose steps were being sent when the process ended, so that nobody knows which of them Slurm has
        heard.
    """

    id: str
    purpose: Purpose
    job_id: int
    submit_s: float
    user: str
    nodes: str
    time_limit_s: float
    begun_s: float
    victims: tuple[Victim, ...] = ()
    promised_s: float = 0.0
    opens_s: float = 0.0
    waits: tuple[NodeWait, ...] = ()
    stage: OperationStage = OperationStage.BEGUN
    stage_s: float = 0.0
    note: str = ""
    idle_gpu_s: float = 0.0
    seen_s: float = 0.0
    sure: bool = True

    @property
    def reservation(self) -> str:
        """Name of its reservation, unlike that of any other operation."""
        return RESERVATION_PREFIX + self.id

    @property
    def ending(self) -> bool:
        """Whether only what it has made is still to go."""
        return self.stage in (OperationStage.CLEANING, OperationStage.REVERSING)


@dataclass(frozen=True, slots=True, eq=False)
class Reservations(Table):
    """One row a reservation of Slurm, in ascending name. All columns are (R,)."""

    name: Labels = text_column()
    node_list: Labels = text_column()  # hostlist text
    users: Labels = text_column()
    flags: Labels = text_column()
    start_s: Floats = column(np.float64, NAN)
    end_s: Floats = column(np.float64, NAN)
    to_come: Bools = column(np.bool_, False)  # Slurm says that it has not begun (or is over)
    accounts: Labels = text_column()  # who may run in it, as printed: "-biology" = all but that
    groups: Labels = text_column()
    qos: Labels = text_column()
    tres: Labels = text_column()  # what it keeps in all, e.g. "cpu=2,gres/gpu=4"
    cores: Labels = text_column()  # cores that it keeps of each node, "n3=1,n4=1"; "" = its nodes are whole
