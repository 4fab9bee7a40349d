"""Nodes that gangs take consolidated or not at all: what an ideal cluster with node_gpus keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.kernels.gang_fit import pick_gang
from slurmsched.model import Plan, Receipt
from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.trace import Trace
from slurmsched.protocols import CpuMemoryPhysics
from slurmsched.sim.cluster_layout import ClusterDescription
from slurmsched.sim.experiments.adapting_jobs import AdaptingCluster
from slurmsched.sim.experiments.published_settings import NodeChoice, PublishedSettings
from slurmsched.sim.ideal.cpu_memory_cluster import CpuMemoryCluster
from slurmsched.sim.ideal.gpu_parts_cluster import GpuPartsCluster
from slurmsched.sim.ideal.ideal_cluster import IdealCluster, MovableEnds
from slurmsched.sim.ideal.ideal_plan import IdealPlan
from slurmsched.sim.ideal.ideal_snapshot import TIME_LIMIT
from slurmsched.sim.ideal.physics_cluster import PhysicsCluster

if TYPE_CHECKING:
    from slurmsched.protocols import Physics
    from slurmsched.sim.ideal.cluster_hardware import ClusterHardware


class WholeNodes:
    """Free GPUs of nodes of `size` GPUs each. size 0: there are no nodes. choice: see PublishedSettings.node_choice."""

    def __init__(self, gpus: int, size: int, choice: NodeChoice) -> None:
        self._size, self._choice = size, choice
        self._free = np.full(gpus // size if size else 0, size, np.int64)
        self._shares: dict[int, Int64s] = {}

    def take(self, row: int, gpus: int) -> bool:
        """Whether there is room for this gang on the fewest nodes, which it then has."""
        parts = [gpus]
        if self._choice == "rest-emptiest" and gpus > self._size and gpus % self._size:
            parts = [gpus - gpus % self._size, gpus % self._size]
        free = self._free.copy()
        for place, part in enumerate(parts):
            shares = self._on_fewest(free, part, -free.astype(np.float64) if place else np.zeros(len(free)))
            if shares is None:
                return False
            free -= shares
        self._shares[row] = self._free - free
        self._free = free
        return True

    def give(self, row: int) -> None:
        """The gang is gone."""
        self._free += self._shares.pop(row, 0)

    def _on_fewest(self, free: Int64s, gpus: int, price: Floats) -> Int64s | None:
        """GPUs of each node for that many, None if they have no place now. (N,)."""
        shares = np.zeros(len(free), np.int64)
        return shares if pick_gang(free, price, gpus, 1, self._size, shares) else None


# An ideal cluster with what single simulators do besides.


def ideal_cluster(trace: Trace, nodes: Sequence[int], model: PublishedSettings, *, seed: int = 0) -> IdealCluster:
    """The cluster that these settings ask for.

    Raises as IdealCluster, and ConfigError where jobs are to tell their progress, useless without physics.
    """
    if model.tells_progress:
        raise ConfigError("needs --physics: without it a job is as fast anywhere", key="model.tells_progress")
    if model.adapts:
        return AdaptingCluster(trace, nodes, model, seed=seed)
    made: type[IdealCluster] = PublishedCluster if model.own_cluster else IdealCluster
    return made(slowed(trace, model), nodes, model, seed=seed)


def slowed(trace: Trace, model: PublishedSettings) -> Trace:
    """The trace with the run times that PublishedSettings.slowdown makes of its own."""
    if model.slowdown == 1.0:
        return trace
    slower_s = trace.duration_s * model.slowdown
    limit_s = np.where(trace.limit_known, trace.time_limit_s, slower_s)
    return trace.with_columns(duration_s=slower_s, time_limit_s=limit_s)


class PublishedCluster(MovableEnds):
    """The ideal cluster with the costs and refusals of PublishedSettings."""

    model: PublishedSettings

    def __init__(self, trace: Trace, nodes: Sequence[int], model: PublishedSettings, *, seed: int = 0) -> None:
        super().__init__(trace, nodes, model, seed=seed)
        order = np.argsort(trace.job_id, kind="stable")  # rows of JobArrays
        self._sizes = trace.gpus[order]
        self._restart_s = model.restart_costs(self._sizes)
        self._event_s = model.event_costs(trace.model.take(order), self._sizes)
        self._lost_s = np.zeros(len(trace))  # to events in this run
        self._needed_s = self.job_arrays.duration_s + model.start_cost_s  # run time of each job in all, as known so far
        self._charged_s = 0.0  # the last event
        self._rooms = WholeNodes(int(self.capacity.sum()), model.node_gpus, model.node_choice)
        self._asked: set[int] | None = None  # rows to start, while a plan is applied
        self._tell(slice(None), model.start_cost_s)
        self._check_nodes()

    def _check_nodes(self) -> None:
        """Whole nodes make up the pile: then there is room for any gang once the cluster is empty."""
        size, gpus = self.model.node_gpus, int(self.capacity.sum())
        if size and (not self._pile or gpus % size):
            raise ConfigError(f"needs a plan that only counts GPUs (--placement count), and nodes of {size} GPUs that "
                              f"make up the {gpus}", key="model.node_gpus")  # fmt: skip

    def _step(self, time_s: float) -> int:
        """As the ideal cluster, with what each event costs."""
        happened = super()._step(time_s)
        if self.model.event_cost_s:
            self._charge()
        return happened

    def apply(self, plan: Plan) -> Receipt:
        """As the ideal cluster; with node_gpus the starts find their places in the order of the target, or fail."""
        if not self.model.node_gpus:
            return super().apply(plan)
        self._asked = set()
        receipt = super().apply(plan)
        asked, self._asked, self._queue = self._asked, None, None
        self._open = False  # who comes has to find a place too
        assert isinstance(plan, IdealPlan) and plan.target is not None
        for row in self._seen[plan.target.rows].tolist():
            if row not in asked:
                continue
            if self._rooms.take(row, int(self._sizes[row])):
                self._start(row)
                continue
            self._enough = 0  # whatever GPUs come back may make the place
            if self.model.refusal_blocks:
                break
        self._history.note(self._now_s, self._history.units - self.free, self.waiting)
        return receipt

    def _start(self, row: int) -> None:
        if self._asked is not None:
            self._asked.add(row)
            return
        self._lost_s[row] = 0.0
        super()._start(row)

    def _stop(self, row: int) -> None:
        super()._stop(row)
        remaining_s = self._cost_s(row, False) + (self.job_arrays.duration_s[row] - self.progress_s[row])
        self._need(row, self.executed_s[row] + remaining_s)

    def _leave(self, row: int) -> float:
        self._rooms.give(row)
        return super()._leave(row)

    def _cost_s(self, row: int, first: bool) -> float:
        cost_s = self.model.start_cost_s if first else self._restart_s[row]
        return float(cost_s + self._lost_s[row])

    def _charge(self) -> None:
        """Take from every running job what an event costs, at most what it made since the one before."""
        for row in self._active[: self._present].tolist():
            since_s = max(self.start_s[row], self._charged_s)  # NaN for a job that waits
            lost_s = float(min(self._event_s[row], self._now_s - since_s)) if since_s < self._now_s else 0.0
            if lost_s > 0:
                self._lost_s[row] += lost_s
                self._until(row, float(self._due_s[row]) + lost_s)
                self._need(row, self._needed_s[row] + lost_s)
        self._charged_s = self._now_s

    def _need(self, row: int, needed_s: float) -> None:
        self._tell(row, needed_s - self._needed_s[row])
        self._needed_s[row] = needed_s

    def _tell(self, rows: Any, more_s: float) -> None:
        """Let policies know that a job takes so much longer."""
        if self.model.costs_known:
            self.job_arrays.times[rows, TIME_LIMIT] += more_s


# The same with physics.


def physics_cluster(
    trace: Trace, hardware: ClusterHardware, physics: Physics, model: PublishedSettings, *, seed: int = 0
) -> PhysicsCluster:
    """The cluster with single GPUs and speeds that these settings ask for.

    Raises as PhysicsCluster, and ConfigError for a quirk that is only there without physics.
    """
    if model.restart_cost_by_gpus or model.costs_known or model.node_gpus:
        raise ConfigError("cannot be combined with restart_cost_by_gpus, costs_known or node_gpus; leave one out",
                          key="physics")  # fmt: skip
    if isinstance(physics, CpuMemoryPhysics):
        if model.event_cost_s:
            raise ConfigError(
                "cannot be combined with physics of CPUs and memory; leave one out", key="model.event_cost_s"
            )
        return CpuMemoryCluster(slowed(trace, model), hardware, physics, model, seed=seed)
    made: type[PhysicsCluster] = EventCostCluster if model.event_cost_s else PhysicsCluster
    return made(slowed(trace, model), hardware, physics, model, seed=seed)


def gpu_parts_cluster(
    trace: Trace, described: ClusterDescription, model: PublishedSettings, *, seed: int = 0
) -> GpuPartsCluster:
    """The cluster with parts of GPUs that these settings ask for.

    Raises as GpuPartsCluster, and ConfigError for a quirk of simulators that know whole GPUs only.
    """
    if model.own_cluster or model.adapts or model.tells_progress or model.profile_gpus:
        raise ConfigError("of the settings of published simulators only slowdown works with parts of GPUs; leave the "
                          "others out, or use a placement of whole GPUs", key="placement")  # fmt: skip
    nodes = [node for node in described.layout.nodes if node.gpus]
    return GpuPartsCluster(slowed(trace, model), nodes, model, cpus_known=described.cpus_known, seed=seed)


class EventCostCluster(PhysicsCluster):
    """Each event takes progress from all jobs that run on, as PublishedSettings.event_cost_s; those that share GPUs
    lose what each of them costs, one after the other (Muri's released simulator)."""

    model: PublishedSettings

    def __init__(
        self, trace: Trace, hardware: ClusterHardware, physics: Physics, model: PublishedSettings, *, seed: int = 0
    ) -> None:
        super().__init__(trace, hardware, physics, model, seed=seed)
        order = np.argsort(trace.job_id, kind="stable")  # rows of JobArrays
        self._event_s = model.event_costs(trace.model.take(order), trace.gpus[order])
        self._charged_s = 0.0  # the last event

    def _step(self, time_s: float) -> int:
        """As the cluster, after this event took its cost."""
        self._charge(time_s)
        return super()._step(time_s)

    def _charge(self, time_s: float) -> None:
        """Take from each job that runs on what the event costs, at most what it made since the one before."""
        held = self._holding()
        _, first = np.unique(held.row, return_index=True)
        places = list(zip(held.node[first].tolist(), held.mask[first].tolist(), strict=True))
        group_s: dict[tuple[int, int], float] = {}
        rows = held.row[first].tolist()
        for place, row in zip(places, rows, strict=True):
            group_s[place] = group_s.get(place, 0.0) + float(self._event_s[row])
        for place, row in zip(places, rows, strict=True):
            since_s = max(self.start_s[row], self._charged_s)
            lost_s = min(group_s[place], time_s - since_s)
            if lost_s > 0 and self._due_s[row] > time_s:
                self._made[row] -= lost_s * self.rate[row]
                self._until(row, float(self._due_s[row]) + lost_s)
        self._charged_s = time_s
