"""A cluster of a replay: its layout, Slurm's settings, and what of the description is not modelled."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slurmsched.sim.cluster_layout import ClusterLayout, NodeOutage
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster as it was described.

    settings: Of slurm.conf, as `scontrol show config` names them. Empty: Slurm's defaults.
    model: Fields of SlurmctldSettings that slurm.conf does not have.
    cpus_known: Whether the nodes' CPUs were given.
    warnings: What of the description is not modelled.
    outages: When nodes of the history were closed [Unix s]; `in_time_of` puts them into the layout.
    """

    layout: ClusterLayout
    settings: Mapping[str, str] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    cpus_known: bool = False
    warnings: tuple[str, ...] = ()
    outages: tuple[NodeOutage, ...] = ()

    def in_time_of(self, origin_s: float) -> ClusterDescription:
        """The cluster with its outages on the clock of a trace. origin_s: its 0 [Unix s], NaN = it has no calendar."""
        if not self.outages:
            return self
        if math.isnan(origin_s):
            warning = "outages of nodes are left out: the trace has no calendar"
            return replace(self, outages=(), warnings=(*self.warnings, warning))
        known = {node.name for node in self.layout.nodes}
        moved = tuple(
            replace(each, nodes=nodes, from_s=max(each.from_s - origin_s, 0.0), until_s=each.until_s - origin_s)
            for each in self.outages
            if each.until_s > origin_s and (nodes := tuple(name for name in each.nodes if name in known))
        )
        return replace(self, layout=replace(self.layout, closures=(*self.layout.closures, *moved)), outages=())

    @property
    def gpus(self) -> tuple[int, ...]:
        """GPUs of each node that has some."""
        return tuple(node.gpus for node in self.layout.nodes if node.gpus)

    @property
    def slurm_model(self) -> SlurmctldSettings:
        """The model of this slurmctld. Raises ConfigError for a setting that is not Slurm's."""
        if self.settings:
            return replace(SlurmctldSettings.from_settings(self.settings), **self.model)
        return SlurmctldSettings(**self.model)
