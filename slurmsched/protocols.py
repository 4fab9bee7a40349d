"""The seams: what a policy, a placement, an estimator, physics, a cluster, a planner and a store must offer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.plan import Assignments, Estimates, Plan, Ranking, Receipt
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.terms import Terms


@runtime_checkable
class Policy(Protocol):
    """Who goes first."""

    def rank(self, snapshot: Snapshot) -> Ranking: ...


@runtime_checkable
class ChangingPolicy(Policy, Protocol):
    """Optional: a policy whose order can change though no job comes or ends says when. Without it: never."""

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The earliest time after snapshot.now_s at which `rank` would give another order [Unix s], or infinity.

        ranking: what `rank` gave for this snapshot. running: (N,) bool, who holds GPUs from now on. Too early costs a
        cycle for nothing; too late would miss the change.
        """
        ...


@runtime_checkable
class SteadyPolicy(Policy, Protocol):
    """Optional: a preemptive policy says for how long nobody who waits passes one that holds GPUs.

    Then no cycle runs for GPUs that come back if they are too few to change who runs, or if who is next takes them.
    """

    def next_swap_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The earliest time after snapshot.now_s at which a job that waits may pass one that holds GPUs [Unix s].

        Infinity if only a job that comes can bring that about. ranking, running: as in ChangingPolicy. Any of those
        that wait may start meanwhile: what may happen to them then counts too. Jobs that all hold GPUs may change
        places, and one that holds GPUs may pass one that waits. A policy with a field `estimator` is only
        asked if that says `constant = True`: its estimate of a job never changes.

        A policy may have an attribute `unpassed_gpu_s` too: a job that comes and starts holds its GPUs against all who
        wait until it has attained so much service [GPU s]. Then it starts without a cycle where GPUs are free.
        """
        ...


@runtime_checkable
class Placement(Protocol):
    """On which GPUs."""

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments: ...


@runtime_checkable
class BackfillingPlacement(Placement, Protocol):
    """Optional: a placement that can also look ahead, so that EASY backfill works on it."""

    def backfill(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Running jobs, and those of the ranking that start without delaying the first that must wait."""
        ...


@runtime_checkable
class ReservingPlacement(Protocol):
    """Optional: a placement that can reserve for all waiting jobs, so that conservative backfill works on it."""

    def reserve(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Running jobs, and those of the ranking that start without delaying any before them. Pure."""
        ...


@runtime_checkable
class Estimator(Protocol):
    """How long."""

    def estimate(self, snapshot: Snapshot) -> Estimates: ...


@runtime_checkable
class Telling(Protocol):
    """Optional, of an estimator and of a planner: it can tell what its estimates of run times are made of."""

    def terms(self, snapshot: Snapshot) -> Terms | None:
        """One row a job of the snapshot; None while nothing is learnt."""
        ...


@runtime_checkable
class SpeedEstimator(Protocol):
    """How fast, by GPU type."""

    def speeds(self, snapshot: Snapshot, types: Sequence[str]) -> Floats:
        """Speed of each job on each type over that on its reference type; 0 = it cannot run there. (N, T)."""
        ...


@runtime_checkable
class PairEstimator(Protocol):
    """How fast jobs are that share GPUs."""

    def kept(self, snapshot: Snapshot, first: Int64s, second: Int64s, types: Sequence[str]) -> Floats:
        """Share of its speed alone that each of two jobs keeps on the same GPUs, 0 where nothing is known. (P, T, 2).

        first, second: (P,) rows of jobs that ask for the same number of GPUs.
        """
        ...


@runtime_checkable
class CurveEstimator(Protocol):
    """How fast jobs are on other numbers of GPUs."""

    def curve(self, snapshot: Snapshot, row: int, gpus: Int64s) -> Floats | None:
        """Speed of a job on so many GPUs over that on as many as it asks for, 0 = it cannot run so. (K,).

        None where nothing is known. gpus: (K,), at least 1.
        """
        ...


@runtime_checkable
class Physics(Protocol):
    """How fast jobs of a replay run on what they hold, and what a change of it costs. Pure.

    restart_cost_s, resize_cost_s: run time without progress at a start after a preemption, and when a running job gets
    other GPUs [s]. shared: whether the speed of a job depends on what others hold; then `held` names everything that
    is held, else it may name only jobs that start or change.
    """

    @property
    def restart_cost_s(self) -> float: ...
    @property
    def resize_cost_s(self) -> float: ...
    @property
    def shared(self) -> bool: ...

    def speed(self, snapshot: Snapshot, held: Assignments) -> Floats:
        """Progress of each job of held.rows in a second, in seconds of the recorded run time. (R,) float64, above 0.

        1 is the recorded speed. held: what they hold from now on, with gpu_mask. Of the snapshot count nodes, topology
        and what jobs ask for (their name is the model of the trace); who runs and who waits may be older.
        """
        ...


@runtime_checkable
class TypedPhysics(Physics, Protocol):
    """Optional: physics that knows on which GPU types a job runs at all. Without it: on every one."""

    def runs_on(self, model: str, gpus: int, types: Iterable[str]) -> frozenset[str]:
        """Those of the types. model: the trace's."""
        ...


@runtime_checkable
class ColocatingPhysics(Physics, Protocol):
    """Optional: physics that knows how fast jobs are on the same GPUs; `shared` holds too. Without it none may be."""

    @property
    def colocates(self) -> bool: ...


class Cluster(Protocol):
    """A Slurm, or something that stands for one."""

    def read(self) -> Snapshot:
        """The cluster now. Raises SlurmError when it cannot be read whole."""
        ...

    def apply(self, plan: Plan) -> Receipt:
        """Carry out the plan's actions in their order. One refused action never stops the others."""
        ...


class Planner(Protocol):
    """The pure middle of a cycle."""

    def plan(self, snapshot: Snapshot) -> Plan: ...


class LeverRecord(Protocol):
    """What is on record of one lever of one job."""

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
        """What undo gives back."""
        ...

    @property
    def values(self) -> frozenset[int]:
        """Every value ever sent, or about to be."""
        ...

    @property
    def last(self) -> int:
        """The latest of them."""
        ...


class Store(Protocol):
    """Memory between cycles: the ledger, or plain objects in a replay."""

    def recall(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with what is remembered: attained service, base nice, history, carry."""
        ...

    def append(self, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
        """Remember this cycle. Facts are appended, never changed."""
        ...
