"""Protocols: what policies, placements, estimators, physics, clusters, readers, planners and stores must offer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from slurmsched.model.columns import Bools, Floats, Int64s, Labels
from slurmsched.model.plan import Assignments, Estimates, Plan, Ranking, Receipt, RunTimeFactors
from slurmsched.model.snapshot import Snapshot


@runtime_checkable
class Policy(Protocol):
    """Who goes first.

    A policy may have more attributes; without one the default counts:
    preemptive: bool, whether its order is meant to take GPUs from running jobs. Default: False.
    learns: bool, whether it uses jobs that ended (Snapshot.past). Default: False.
    estimator: Estimator, source of expected run times; the configuration may replace it. Default: none.
    about: PolicyInfo, what people should know about it. Default: none.
    """

    def rank(self, snapshot: Snapshot) -> Ranking: ...


def is_preemptive(policy: object) -> bool:
    """Whether the order of a policy is meant to take GPUs from running jobs."""
    return bool(getattr(policy, "preemptive", False))


@runtime_checkable
class ChangingPolicy(Policy, Protocol):
    """Optional: the order of the policy can change although no job comes or ends. Without it: never."""

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The earliest time after snapshot.now_s at which `rank` would give another order [Unix s], or infinity.

        ranking: what `rank` returned for this snapshot.
        running: (N,) bool, jobs that hold GPUs from now on.
        A time that is too early costs a cycle. A time that is too late is wrong.
        """
        ...


@runtime_checkable
class Placement(Protocol):
    """On which GPUs."""

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments: ...


def knows_gpu_parts(placement: object) -> bool:
    """Whether a placement gives jobs parts of GPUs: its attribute `shares`. Others give whole ones."""
    return bool(getattr(placement, "shares", False))


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
class ExplainingEstimator(Protocol):
    """Optional, of an estimator and of a planner: it can tell what its estimates of run times are made of."""

    def terms(self, snapshot: Snapshot) -> RunTimeFactors | None:
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

    def shared_speeds(self, snapshot: Snapshot, first: Int64s, second: Int64s, types: Sequence[str]) -> Floats:
        """Share of its speed alone that each of two jobs keeps on the same GPUs, 0 where nothing is known. (P, T, 2).

        first, second: (P,) rows of jobs that ask for the same number of GPUs.
        """
        ...


@runtime_checkable
class CurveEstimator(Protocol):
    """How fast jobs are on other numbers of GPUs."""

    def curve(self, snapshot: Snapshot, row: int, gpus: Int64s) -> Floats | None:
        """Speed of a job on that many GPUs over that on as many as it asks for, 0 = it cannot run so. (K,).

        None where nothing is known. gpus: (K,), at least 1.
        """
        ...


@runtime_checkable
class TypedCurveEstimator(Protocol):
    """How fast jobs are on other numbers of GPUs of each type."""

    def curve_on(self, snapshot: Snapshot, row: int, type_: str, gpus: Int64s, apart: Bools) -> Floats | None:
        """Speed of a job on that many GPUs of a type, over that on the reference type. (K,).

        On the reference type it is the speed on as many GPUs as the job asks for. 0 = the job cannot run so. None where
        nothing is known.

        gpus: (K,), at least 1.
        apart: (K,) whether they are on several nodes.
        """
        ...


@runtime_checkable
class Physics(Protocol):
    """How fast jobs of a replay run on what they hold, and what a change of it costs. Pure.

    restart_cost_s, resize_cost_s: run time without progress at a start after a preemption, and when a running job gets
    other GPUs [s]. shared: whether the speed of a job depends on what others hold; then `held` names everything that is
    held, else it may name only jobs that start or change.
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
class CpuMemoryPhysics(Physics, Protocol):
    """Optional: physics in which CPUs and memory beside the GPUs count. Without it they do not.

    cpus_per_gpu, memory_gib_per_gpu: of nodes of which the cluster does not tell it.
    """

    @property
    def cpus_per_gpu(self) -> float: ...
    @property
    def memory_gib_per_gpu(self) -> float: ...


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


@runtime_checkable
class LinkSensitivePhysics(Physics, Protocol):
    """Optional: physics in which slow links slow jobs down. insensitive: words in names of models that do not mind."""

    @property
    def insensitive(self) -> tuple[str, ...]: ...


@runtime_checkable
class MixedTypePhysics(Physics, Protocol):
    """Optional: physics of jobs on several GPU types at once. 0: they are as slow as on their slowest type."""

    @property
    def mixed_efficiency(self) -> float: ...


@runtime_checkable
class ScalingPhysics(Physics, Protocol):
    """Optional: physics of jobs on other numbers of GPUs than they ask for. Without it each job has what it asks for.

    scales: whether `speed` heeds how many GPUs a job holds.
    """

    @property
    def scales(self) -> bool: ...


@runtime_checkable
class ProgressPhysics(Physics, Protocol):
    """Optional: physics in which a job is faster or slower as it makes progress."""

    def pace(self, snapshot: Snapshot, held: Assignments, done: Floats) -> tuple[Floats, Floats]:
        """Speed of each job of held.rows, and the share of its work at which its speed changes. (R,), (R,).

        done: (R,) share of its work that is done, 0 to 1. A share of 1 or more: the speed stays to the end.
        """
        ...


@runtime_checkable
class LossPhysics(Physics, Protocol):
    """Optional: physics that knows how the loss of jobs falls. tells_loss: whether jobs tell it, by the hint `loss`."""

    @property
    def tells_loss(self) -> bool: ...

    def losses(self, models: Labels, done: Floats) -> Floats:
        """Loss of the first step, of the step before and of now, NaN where a job has made none. (R, 3).

        models: (R,). done: (R,) share of its work that each job has done, 0 to 1.
        """
        ...


class Cluster(Protocol):
    """A Slurm, or something that stands for one."""

    def read(self) -> Snapshot:
        """The cluster now. Raises SlurmError when it cannot be read whole."""
        ...

    def apply(self, plan: Plan) -> Receipt:
        """Carry out the plan's actions in their order. One refused action never stops the others."""
        ...


class DecidingPlanner(Protocol):
    """The pure middle of a cycle."""

    def plan(self, snapshot: Snapshot) -> Plan: ...


class Store(Protocol):
    """Memory between cycles: the ledger, or plain objects in a replay."""

    def recall(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with what is remembered: attained service, base nice, history, carry."""
        ...

    def append(self, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
        """Remember this cycle. Facts are appended, never changed."""
        ...


class ClusterReader(Protocol):
    """A way to read a cluster. name: its name in the configuration."""

    name: str

    def begin(self) -> None:
        """Start what the next read waits for, so that other work can be done meanwhile."""
        ...

    def read(self) -> Snapshot:
        """The cluster now, without the columns of the ledger. Raises SlurmError if it cannot be read completely."""
        ...

    def doubt_rights(self) -> None:
        """Read our rights again at the next read, because Slurm refused a write."""
        ...

    def close(self) -> None:
        """End every process of this reader."""
        ...
