"""Which jobs of a simulated cluster hold which CPUs and how much memory beside their GPUs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.estimators.cpu_memory_speeds import MIB_PER_GIB
from slurmsched.model import Plan, Receipt, Snapshot
from slurmsched.model.columns import Floats, made_read_only
from slurmsched.model.plan import Assignments
from slurmsched.model.trace import Trace
from slurmsched.protocols import CpuMemoryPhysics
from slurmsched.sim.ideal.cluster_hardware import ClusterHardware
from slurmsched.sim.ideal.ideal_plan import IdealPlan
from slurmsched.sim.ideal.ideal_settings import IdealSettings
from slurmsched.sim.ideal.physics_cluster import PhysicsCluster

ROUNDING = 1e-6  # CPUs or MiB of a node that may be given beyond what there is


class CpuMemoryCluster(PhysicsCluster):
    """The cluster with physics whose placement also chooses CPUs and memory of jobs.

    Waiting jobs ask for no number of CPUs and no memory: what they get is chosen. Jobs that a placement leaves open
    have an equal part by GPUs, and hold no CPUs in snapshots. Nodes of which the hardware tells no CPUs or memory have
    those of the physics. cpus, memory_mib: (J,) what each job holds, or held last.
    """

    def __init__(
        self,
        trace: Trace,
        hardware: ClusterHardware,
        physics: CpuMemoryPhysics,
        model: IdealSettings | None = None,
        *,
        seed: int = 0,
    ) -> None:
        nodes = hardware.nodes
        cpus = np.where(nodes.cpus > 0, nodes.cpus, nodes.gpus * physics.cpus_per_gpu)
        memory = np.where(nodes.memory_mib > 0, nodes.memory_mib, nodes.gpus * physics.memory_gib_per_gpu * MIB_PER_GIB)
        equipped = replace(hardware, nodes=nodes.with_columns(cpus=cpus.astype(np.int32), memory_mib=memory))
        super().__init__(trace, equipped, physics, model, seed=seed)
        self.cpus, self.memory_mib = np.zeros(len(trace)), np.zeros(len(trace))

    @property
    def undecided(self) -> bool:
        """As the cluster with physics; jobs that run may get more CPUs when one ends, though nobody waits."""
        return (self._ended and self._present > 0) or super().undecided

    def read(self) -> Snapshot:
        """The cluster now."""
        plain, held, nodes = super().read(), self._holding(), len(self.capacity)
        runs = ~np.isnan(self.start_s[self._seen])
        columns = self._columns(
            np.where(runs, self.cpus[self._seen], 0), np.where(runs, self.memory_mib[self._seen], 0)
        )
        share = held.gpus / np.maximum(self.size[held.row], 1)
        used = plain.nodes.with_columns(
            cpus_used=np.rint(np.bincount(held.node, self.cpus[held.row] * share, nodes)).astype(np.int32),
            memory_used_mib=np.bincount(held.node, self.memory_mib[held.row] * share, nodes),
        )
        self._shown = replace(plain, jobs=plain.jobs.with_columns(**columns), nodes=used)
        return self._shown

    def apply(self, plan: Plan) -> Receipt:
        """As the cluster with physics. Raises ConfigError for a target that gives away more than a node has."""
        if isinstance(plan, IdealPlan) and plan.target is not None and len(plan.target.cpus):
            self._check_room(plan.target)
            rows = self._seen[plan.target.rows]
            self.cpus[rows], self.memory_mib[rows] = plan.target.cpus, plan.target.memory_mib
        return super().apply(plan)

    def _check_room(self, target: Assignments) -> None:
        job = np.repeat(np.arange(len(target.rows)), target.count)
        share = target.gpus / np.bincount(job, target.gpus, len(target.rows))[job]
        nodes, there = len(self.capacity), self.stage.nodes
        for name, given, have in (("CPUs", target.cpus, there.cpus), ("memory", target.memory_mib, there.memory_mib)):
            taken = np.bincount(target.node, given[job] * share, nodes)
            if (over := taken > have + ROUNDING * np.maximum(have, 1)).any():
                node = int(over.argmax())
                message = f"gives {taken[node]:g} of {have[node]:g} {name} of {there.name[node]}"
                raise ConfigError(message, key="placement")

    def _with_models(self, snapshot: Snapshot) -> Snapshot:
        """As for any physics, and the CPUs and memory that jobs hold from now on."""
        named = super()._with_models(snapshot)
        columns = self._columns(self.cpus[self._seen], self.memory_mib[self._seen])
        return replace(named, jobs=named.jobs.with_columns(**columns))

    @staticmethod
    def _columns(cpus: Floats, memory_mib: Floats) -> dict[str, Floats]:
        return {"cpus": made_read_only(np.rint(cpus).astype(np.int32)), "memory_mib": made_read_only(memory_mib)}
