"""CPUs and memory: jobs that are slow with few CPUs beside their GPUs, or with too little memory for their input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.estimators.cpu_memory_speeds import MIB_PER_GIB, SYNERGY, cpu_memory_profiles, profile_of
from slurmsched.model import Assignments, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.sim.physics.change_costs import ChangeCosts


@dataclass(frozen=True, slots=True)
class CpuMemorySpeed(ChangeCosts):
    """Speed by CPUs and memory for each GPU, over the speed with an equal part of the node.

    profiles: a table of speeds by CPUs and memory, or "synergy", see estimators.cpu_memory_speeds. Models that are not
    in it, and jobs whose placement does not choose CPUs and memory, run as recorded.
    cpus_per_gpu, memory_gib_per_gpu: of nodes of which the cluster does not tell it.
    Raises ConfigError for a number that is not above 0, InputError for a table that cannot be read.
    Source: profiles of Mohan et al. (Synergy), OSDI '22.
    """

    shared: ClassVar[bool] = True  # so that jobs on other CPUs than before get their new speed

    profiles: str = SYNERGY
    cpus_per_gpu: float = 3.0
    memory_gib_per_gpu: float = 62.5

    def __post_init__(self) -> None:
        for name in ("cpus_per_gpu", "memory_gib_per_gpu"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 < value < np.inf:
                raise ConfigError(f"must be above 0, got {value!r}", key=f"physics.{name}")
        cpu_memory_profiles(self.profiles)

    def speed(self, snapshot: Snapshot, held: Assignments) -> Floats:
        """See protocols.Physics. Jobs have the CPUs and the memory of the snapshot's columns, 0 = an equal part."""
        found, jobs, nodes = np.ones(len(held.rows)), snapshot.jobs, snapshot.nodes
        for place, row in enumerate(held.rows.tolist()):
            profile = profile_of(self.profiles, jobs.name[row])
            if profile is None or not jobs.cpus[row]:
                continue
            gpus, node = int(jobs.gpus[row]), int(held.node[held.first[place]])
            has = profile.at(jobs.cpus[row] / gpus, jobs.memory_mib[row] / MIB_PER_GIB / gpus)
            there = int(nodes.gpus[node])
            found[place] = has / profile.at(nodes.cpus[node] / there, nodes.memory_mib[node] / MIB_PER_GIB / there)
        return found
