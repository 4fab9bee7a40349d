"""GPU types: how fast a model trains on the type of GPU it holds, from a table of throughputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from slurmsched.errors import ConfigError, InputError
from slurmsched.estimators.throughput_table import throughput, throughput_table
from slurmsched.model import Assignments, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.model.gres import parse_gres
from slurmsched.replay.physics.costs import Costs
from slurmsched.replay.physics.levels import places
from slurmsched.words import some

APART = "_unconsolidated"  # workers on several nodes


@dataclass(frozen=True, slots=True)
class GpuTypes(Costs):
    """Speed by model, GPU type, number of GPUs, and whether they are on one node.

    throughputs: a file as estimators/throughput_table.py reads it, or "gavel", which is shipped. reference:
    the type on which the trace's run times are; what is left of a job is counted in its seconds. whole_steps_s: a job
    does as many steps as fit whole into a round of this length [s]; 0 = no rounds. A node without a type has the
    reference type. mixed_efficiency: of a gang on several types that shares out its batch by their speeds, the part of
    the sum of what its GPUs do each that is left. It is never slower than by equal parts of the batch, which go at the
    pace of the slowest type; 0 = by equal parts only.
    Raises ConfigError without a file, for a reference that is not in it and for an efficiency above 1, InputError for a
    file that cannot be read, and for a job on GPUs that its model has no throughput on; the cluster offers it none (see
    runs_on).
    Source: Narayanan et al. (Gavel), OSDI '20; shares of a batch by speed: Jia et al. (Whale), ATC '22; the sum times
    an efficiency is ours.
    """

    throughputs: str = ""
    reference: str = "v100"
    whole_steps_s: float = 0.0
    mixed_efficiency: float = 0.0

    def __post_init__(self) -> None:
        if not self.throughputs:
            raise ConfigError("needs a table: gpu-types:throughputs=simulation_throughputs.json",
                              key="physics.throughputs")  # fmt: skip
        if self.reference not in throughput_table(self.throughputs):
            known = ", ".join(sorted(throughput_table(self.throughputs)))
            raise ConfigError(f"{self.throughputs} has no type {self.reference!r}; it has {known}",
                              key="physics.reference")  # fmt: skip
        share = self.mixed_efficiency
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ConfigError(f"must be at least 0 and at most 1, got {share!r}", key="physics.mixed_efficiency")

    def speed(self, snapshot: Snapshot, held: Assignments) -> Floats:
        """See protocols.Physics."""
        found = np.empty(len(held.rows))
        for k, (row, (nodes, masks)) in enumerate(zip(held.rows.tolist(), places(held), strict=True)):
            found[k] = self._pace(snapshot, row, nodes, [mask.bit_count() for mask in masks])
        return found

    def _pace(self, snapshot: Snapshot, row: int, nodes: list[int], gpus: list[int]) -> float:
        """Speed of a job with so many GPUs on each of these nodes."""
        pace = {type_: self._relative(snapshot, row, type_) for type_ in self.types_at(snapshot, nodes)}
        equal = min(pace.values())
        if len(pace) == 1 or not self.mixed_efficiency:
            return equal
        apart = APART if len(nodes) > 1 else ""
        by_node = [min(pace[(type_ or self.reference) + apart] for type_ in _types(snapshot, [node])) for node in nodes]
        return max(equal, self.mixed_efficiency * float(np.dot(gpus, by_node)) / sum(gpus))

    def types_at(self, snapshot: Snapshot, nodes: list[int]) -> list[str]:
        """The worker types of the table that a job on these nodes has, ascending."""
        apart = APART if len(nodes) > 1 else ""
        return sorted({(type_ or self.reference) + apart for type_ in _types(snapshot, nodes)})

    def runs_on(self, model: str, gpus: int, types: Iterable[str]) -> frozenset[str]:
        """Those of the types on which the table has this model on so many GPUs, on one node and on several."""
        table, forms = throughput_table(self.throughputs), ("", APART) if gpus > 1 else ("",)
        return frozenset(
            each for each in types
            if all(throughput(table.get((each or self.reference) + form, {}), model, gpus) > 0 for form in forms)
        )  # fmt: skip

    def _relative(self, snapshot: Snapshot, row: int, type_: str) -> float:
        model, gpus = snapshot.jobs.name[row], int(snapshot.jobs.gpus[row])
        table, job = throughput_table(self.throughputs), int(snapshot.jobs.job_id[row])
        here, there = (throughput(table.get(name, {}), model, gpus) for name in (type_, self.reference))
        if here > 0 and there > 0:
            return self.whole(here) / there
        missing = type_ if there > 0 else self.reference
        raise InputError(f"job {job}: model {model!r} on {some(gpus, 'GPU')} has no throughput on {missing!r}; "
                         "leave out such jobs or nodes, or add it", source=self.throughputs)  # fmt: skip

    def whole(self, rate: float) -> float:
        """Steps per second that are left of this rate when a round ends with a whole one."""
        steps = rate * self.whole_steps_s
        return int(steps) / self.whole_steps_s if steps >= 1 else rate


def _types(snapshot: Snapshot, nodes: list[int]) -> set[str]:
    """GPU types of these nodes, "" of one that is not told."""
    return {entry.type for node in nodes for entry in parse_gres(snapshot.nodes.gpu_types[node])}
