"""GPU types: how fast a model trains on the type of GPU it holds, from a table of throughputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.errors import ConfigError, InputError
from slurmsched.estimators.throughput_table import APART, pair_throughput, throughput, throughput_table
from slurmsched.estimators.throughputs import rates_at_sizes
from slurmsched.model import Assignments, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.model.gres import parse_gres
from slurmsched.model.parameters import check_words
from slurmsched.plain_text import pluralize
from slurmsched.sim.physics.change_costs import ChangeCosts, check_speed, models_named
from slurmsched.sim.physics.interconnect_speed import places, sharing


@dataclass(frozen=True, slots=True)
class GpuTypeSpeed(ChangeCosts):
    """Speed by model, GPU type, number of GPUs, and whether they are on one node.

    throughputs: a file as estimators/throughput_table.py reads it, or "gavel", which is shipped.
    reference: the type on which the run times of the trace were measured. A node without a type has this one.
    whole_steps_s: a job does as many steps as fit whole into a round of this length [s]; 0 = no rounds.
    mixed_efficiency: speed of a gang on several types over the sum of the speeds of its GPUs, if it shares out its
        batch by their speeds. A gang is never slower than by equal parts, which go at the pace of the slowest type; 0 =
        by equal parts only.

    A job on another number of GPUs than it asks for has the throughput of that number. Between sizes of the table it is
    along straight lines in logarithms.

    Raises ConfigError without a file, for a reference that is not in it and for an efficiency above 1.
    Raises InputError for a file that cannot be read, and for a job on GPUs that its model has no throughput on. The
    cluster does not offer such GPUs (see runs_on).
    Source: Narayanan et al. (Gavel), OSDI '20; shares of a batch by speed: Jia et al. (Whale), ATC '22; the sum times
    an efficiency is ours.
    """

    scales: ClassVar[bool] = True

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
        """Speed of a job with that many GPUs on each of these nodes."""
        pace = {type_: self._relative(snapshot, row, type_, sum(gpus)) for type_ in self.types_at(snapshot, nodes)}
        equal = min(pace.values())
        if len(pace) == 1 or not self.mixed_efficiency:
            return equal
        apart = APART if len(nodes) > 1 else ""
        by_node = [
            min(pace[(type_ or self.reference) + apart] for type_ in _types_of_nodes(snapshot, [node]))
            for node in nodes
        ]
        return max(equal, self.mixed_efficiency * float(np.dot(gpus, by_node)) / sum(gpus))

    def types_at(self, snapshot: Snapshot, nodes: list[int]) -> list[str]:
        """The worker types of the table that a job on these nodes has, ascending."""
        apart = APART if len(nodes) > 1 else ""
        return sorted({(type_ or self.reference) + apart for type_ in _types_of_nodes(snapshot, nodes)})

    def runs_on(self, model: str, gpus: int, types: Iterable[str]) -> frozenset[str]:
        """Those of the types on which the table has this model on that many GPUs, on one node and on several."""
        table, forms = throughput_table(self.throughputs), ("", APART) if gpus > 1 else ("",)
        return frozenset(
            each for each in types
            if all(throughput(table.get((each or self.reference) + form, {}), model, gpus) > 0 for form in forms)
        )  # fmt: skip

    def _relative(self, snapshot: Snapshot, row: int, type_: str, held: int) -> float:
        model, gpus = snapshot.jobs.name[row], int(snapshot.jobs.gpus[row])
        table, job = throughput_table(self.throughputs), int(snapshot.jobs.job_id[row])
        here, there = (throughput(table.get(name, {}), model, gpus) for name in (type_, self.reference))
        if held != gpus and there > 0:
            here, gpus = self._at_size(type_, model, held), held
        if here > 0 and there > 0:
            return self.whole(here) / there
        missing = type_ if there > 0 else self.reference
        raise InputError(f"job {job}: model {model!r} on {pluralize(gpus, 'GPU')} has no throughput on {missing!r}; "
                         "leave out such jobs or nodes, or add it", source=self.throughputs)  # fmt: skip

    def _at_size(self, type_: str, model: str, held: int) -> float:
        """Steps per second on other GPUs than it asks for; 0 where nothing is known."""
        found = rates_at_sizes(self.throughputs, type_, model, (held,))
        return 0.0 if found is None else float(found[0])

    def whole(self, rate: float) -> float:
        """Steps per second that are left of this rate when a round ends with a whole one."""
        steps = rate * self.whole_steps_s
        return int(steps) / self.whole_steps_s if steps >= 1 else rate


def _types_of_nodes(snapshot: Snapshot, nodes: list[int]) -> set[str]:
    """GPU types of these nodes, "" of one that is not told."""
    return {entry.type for node in nodes for entry in parse_gres(snapshot.nodes.gpu_types[node])}


# Pairs by a table.


@dataclass(frozen=True, slots=True)
class PairSpeed(GpuTypeSpeed):
    """Speed alone as of gpu-types, and beside another job on the same GPUs by the pair's own throughputs there.

    throughputs: as of gpu-types; the table must have pairs, as `gavel` has of one GPU each.
    reference: as of gpu-types.
    whole_steps_s: as of gpu-types.

    Two jobs share all their GPUs or none. When one of them ends the other goes on at its speed alone.
    Raises what gpu-types raises.
    Raises InputError for three jobs on a GPU, and for jobs that share only a part of their GPUs.
    Raises InputError for a pair without throughputs in the table.
    Source: Narayanan et al. (Gavel), OSDI '20.
    """

    shared: ClassVar[bool] = True
    colocates: ClassVar[bool] = True
    scales: ClassVar[bool] = False  # pairs are told of jobs at their own size only

    def speed(self, snapshot: Snapshot, held: Assignments) -> Floats:
        """See protocols.Physics."""
        found = GpuTypeSpeed.speed(self, snapshot, held)
        nodes = [nodes for nodes, _ in places(held)]
        for pair in sharing(snapshot, held):
            found[pair] = self._pair(snapshot, held.rows[pair].tolist(), nodes[pair[0]])
        return found

    def _pair(self, snapshot: Snapshot, rows: list[int], nodes: list[int]) -> Floats:
        """Speeds of two jobs that share their GPUs on these nodes; on several types the slowest counts. (2,)."""
        table, jobs = throughput_table(self.throughputs), snapshot.jobs
        one, other = (jobs.name[row] for row in rows)
        gpus, made = int(jobs.gpus[rows[0]]), []
        base = [throughput(table[self.reference], model, gpus) for model in (one, other)]
        for type_ in self.types_at(snapshot, nodes):
            rates = pair_throughput(table.get(type_, {}), one, other, gpus)
            if min(rates) <= 0:
                raise InputError(
                    f"jobs {jobs.job_id[rows[0]]} and {jobs.job_id[rows[1]]}: models {one!r} and {other!r} on the same "
                    f"{pluralize(gpus, 'GPU')} have no throughputs on {type_!r}; let them not share, or add those",
                    source=self.throughputs,
                )
            made.append([self.whole(rate) for rate in rates])
        return np.min(np.array(made), axis=0) / np.array(base)


# Pairs by tiers of use.


@dataclass(frozen=True, slots=True)
class UtilizationSpeed(ChangeCosts):
    """Speed 1 alone; beside another job the share that stands in `kept` at the sum of both scores.

    tiny, medium: words in names of models whose jobs score 0 and 1; all others score 2.
    kept: five shares, of the sums 0 to 4. Two jobs share all their GPUs or none; when one of them ends the other goes
        on at speed 1.
    Raises ConfigError for shares that are not five, that ascend or are not within 0 and 1, and for words that are no
    list.
    Raises InputError for three jobs on a GPU, and for jobs that share a part of their GPUs.
    Source: Hu et al. (Lucid), ASPLOS '23. Its public analyzer labels models by these tiers. Their bounds are a mean
    speed beside others of 0.95 and 0.85. A bound is the share of the sums 0 and 2, and sum 1 lies between. The shares
    of the sums 3 and 4 are ours: Lucid never packs such jobs.
    """

    shared: ClassVar[bool] = True
    colocates: ClassVar[bool] = True

    tiny: tuple[str, ...] = ()
    medium: tuple[str, ...] = ()
    kept: tuple[float, ...] = (0.95, 0.9, 0.85, 0.7, 0.55)

    def __post_init__(self) -> None:
        if len(self.kept) != 5:
            raise ConfigError(f"needs five shares, of the sums 0 to 4, got {len(self.kept)}", key="physics.kept")
        for share in self.kept:
            check_speed("kept", share)
        if list(self.kept) != sorted(self.kept, reverse=True):
            raise ConfigError("must not ascend: heavier jobs keep no more", key="physics.kept")
        for name in ("tiny", "medium"):
            check_words(name, getattr(self, name), "physics")

    def speed(self, snapshot: Snapshot, held: Assignments) -> Floats:
        """See protocols.Physics."""
        models = snapshot.jobs.name
        score = np.where(models_named(models, self.tiny), 0, np.where(models_named(models, self.medium), 1, 2))[
            held.rows
        ]
        found = np.ones(len(held.rows))
        for pair in sharing(snapshot, held):
            found[pair] = self.kept[int(score[pair].sum())]
        return found
