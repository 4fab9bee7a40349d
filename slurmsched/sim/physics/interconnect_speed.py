"""Speed by interconnect: the farther the GPUs of a job are from each other, the slower it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import ClassVar

import numpy as np

from slurmsched.errors import ConfigError, InputError
from slurmsched.model import Assignments, Snapshot
from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.gpu_masks import mask_members
from slurmsched.model.gpu_topology import GpuTopology, LinkKind, SiteTopology
from slurmsched.model.parameters import check_words
from slurmsched.placements import topology_aware as placement
from slurmsched.placements.mapa import ALL_RINGS, fastest_set, predicted_of
from slurmsched.placements.topology_aware import LEAST_COST
from slurmsched.plain_text import pluralize
from slurmsched.resources.gpu_sets import TABLE_GPUS, set_table, slowest_link
from slurmsched.sim.physics.change_costs import ChangeCosts, check_speed, topology_sensitive

Place = tuple[list[int], list[int]]  # node rows of a job, and the mask of its GPUs on each


# How far the GPUs of a job are from each other, and how near they could be.


class GpuDistance(IntEnum):
    """The nearest first. ISLAND: a ring of direct links (NVLink, XGMI) joins them; on a node without such links, they
    are on one NUMA node; where nothing is known of a node, all of it. LEAF: nodes of one lowest cell of the fabric;
    where no fabric is known, any nodes."""

    ISLAND = 0
    NODE = 1
    LEAF = 2
    ACROSS = 3


def places(held: Assignments) -> Iterator[Place]:
    """What each job holds, in the order of held.rows."""
    node, mask = held.node.tolist(), held.gpu_mask.tolist()
    for first, count in zip(held.first.tolist(), held.count.tolist(), strict=True):
        yield node[first : first + count], mask[first : first + count]


def sharing(snapshot: Snapshot, held: Assignments, most: int = 2) -> list[list[int]]:
    """Places in held.rows of each group, of 2 to `most`, that are on the same GPUs. Raises InputError where jobs share
    otherwise."""
    together: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for job, place in enumerate(places(held)):
        together.setdefault(tuple(zip(*place, strict=True)), []).append(job)
    taken: dict[int, int] = {}
    for key, jobs in together.items():
        if len(jobs) > most or any(taken.get(node, 0) & mask for node, mask in key):
            job_id, others = snapshot.jobs.job_id[held.rows[jobs[-1]]], pluralize(most - 1, "other job")
            raise InputError(f"job {job_id} shares GPUs otherwise than all of them with {others}: no speed is known")
        for node, mask in key:
            taken[node] = taken.get(node, 0) | mask
    return [jobs for jobs in together.values() if len(jobs) > 1]


def levels(snapshot: Snapshot, held: Assignments) -> Int64s:
    """The Level that each job of held.rows is on. (R,) int64."""
    return np.array([_level(snapshot.topology, *place) for place in places(held)], np.int64)


def nearest_levels(snapshot: Snapshot, rows: Int64s) -> Int64s:
    """The nearest Level that that many GPUs as each job asks for could be on, were the cluster empty. (R,) int64."""
    topology, sizes = snapshot.topology, snapshot.nodes.gpus.astype(np.int64).tobytes()
    return np.array([_least_distance(topology, sizes, gpus) for gpus in snapshot.jobs.gpus[rows].tolist()], np.int64)


def class_at(topology: SiteTopology, node: int) -> GpuTopology | None:
    """What is known of the wiring of a node, None if nothing."""
    row = int(topology.node_class[node]) if len(topology.node_class) else -1
    return topology.classes[row] if row >= 0 and topology.classes[row].known else None


@lru_cache(maxsize=100_000)
def on_island(topology: GpuTopology, mask: int) -> bool:
    """Whether these GPUs of a node are on Level.ISLAND."""
    gpus, direct = mask_members(mask), topology.kind >= LinkKind.XGMI
    if len(gpus) < 2:
        return True
    if not direct.any():
        return len({int(topology.numa[g]) for g in gpus}) == 1
    if topology.gpus <= TABLE_GPUS:
        return slowest_link(set_table(topology), mask) >= LinkKind.XGMI
    return all(direct[a, b] for a in gpus for b in gpus if a != b)


def _level(topology: SiteTopology, nodes: list[int], masks: list[int]) -> GpuDistance:
    if len(nodes) > 1:
        cells = {int(topology.cell[node]) for node in nodes} if len(topology.cell) else {0}
        return GpuDistance.LEAF if len(cells) == 1 else GpuDistance.ACROSS
    known = class_at(topology, nodes[0])
    return GpuDistance.ISLAND if known is None or on_island(known, masks[0]) else GpuDistance.NODE


@lru_cache(maxsize=4_096)
def _least_distance(topology: SiteTopology, sizes: bytes, gpus: int) -> GpuDistance:
    """sizes: GPUs of each node, int64."""
    of_node = np.frombuffer(sizes, np.int64)
    large = np.flatnonzero(of_node >= gpus).tolist()
    classes = {class_at(topology, node) for node in large}
    if any(one is None or _has_island(one, gpus) for one in classes):
        return GpuDistance.ISLAND
    if large:
        return GpuDistance.NODE
    if not len(topology.cell):
        return GpuDistance.LEAF
    known = topology.cell >= 0
    of_cell = [int(of_node[topology.cell == cell].sum()) for cell in np.unique(topology.cell[known])]
    return GpuDistance.LEAF if max(of_cell, default=int(of_node.sum())) >= gpus else GpuDistance.ACROSS


@lru_cache(maxsize=1_024)
def _has_island(topology: GpuTopology, gpus: int) -> bool:
    """Whether that many GPUs of an empty node can be on one island: its best set is if any is."""
    if topology.gpus <= TABLE_GPUS and (topology.kind >= LinkKind.XGMI).any():
        return on_island(topology, int(set_table(topology).best[-1, gpus]))
    sizes = np.unique(topology.numa, return_counts=True)[1]
    direct = topology.kind >= LinkKind.XGMI
    return bool((1 + direct.sum(axis=1).max()) >= gpus) if direct.any() else bool(sizes.max() >= gpus)


# Spread.


@dataclass(frozen=True, slots=True)
class DistanceSpeed(ChangeCosts):
    """Speed by level: an island of direct links is 1, then within one node, under one leaf switch, across switches.

    The recorded run time is taken as that on the nearest level the job's size allows on an empty cluster.
    node: mean of AlexNet and GoogLeNet at four batch sizes on 2 P100 of two sockets against one (profile published with
        Amaral et al., SC '17).
    leaf: mean of Pollux's six models on 2 T4 of two nodes against one (profiles published with Qiao et al., OSDI '21).
    across: mean of Gavel's 38 rows for 2 and 4 V100, unconsolidated against consolidated (throughputs published with
        Narayanan et al., OSDI '20). No source tells of switches: that the milder figure of the last two is the leaf's
        is ours.
    insensitive: words in names of models whose jobs are as fast anywhere.
    Raises ConfigError unless 1 >= node >= leaf >= across > 0.
    """

    node: float = 0.94
    leaf: float = 0.70
    across: float = 0.58
    insensitive: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("node", "leaf", "across"):
            check_speed(name, getattr(self, name))
        if not self.node >= self.leaf >= self.across:
            raise ConfigError("node, leaf and across must not ascend: farther is not faster", key="physics.spread")
        check_words("insensitive", self.insensitive, "physics")

    def speed(self, snapshot: Snapshot, held: Assignments) -> Floats:
        """See protocols.Physics."""
        of_level = np.array([1.0, self.node, self.leaf, self.across])
        relative = of_level[levels(snapshot, held)] / of_level[nearest_levels(snapshot, held.rows)]
        return np.where(topology_sensitive(snapshot, held.rows, self.insensitive), np.minimum(relative, 1.0), 1.0)


# MAPA.

UNKNOWN = 0.0  # GB/s where nothing tells one set from another


@dataclass(frozen=True, slots=True)
class RingBandwidthSpeed(ChangeCosts):
    """A share of the run time is communication, and goes with the inverse of the predicted bandwidth of the ring.

    The recorded run time is taken as that at the best set of the cluster's nodes for the job's size.

    communication_share: of the run time there. With 0.115 a pair on PCIe takes 1.54 times as long as on a double
        NVLink: 10.4 and 58.9 GB/s by the fit. That is the inverse of the 35 % that the paper saves at most.
    between_nodes_gb_per_s: of a gang on several nodes, 100 Gbit/s; the paper has none.
    insensitive: words in names of models that are not sensitive to bandwidth, the paper's by default.

    Classes of more than 8 GPUs, for which there is no prediction, and nodes of unknown wiring slow no job. Raises
    ConfigError for a share or bandwidth that is none.
    Source: Ranganath et al. (MAPA), SC '21, section 3.4, for the bandwidth; the run time as its function is ours.
    """

    communication_share: float = 0.115
    between_nodes_gb_per_s: float = 12.5
    insensitive: tuple[str, ...] = ("caffenet", "googlenet")

    def __post_init__(self) -> None:
        if not 0 <= self.communication_share < 1:
            raise ConfigError(f"must be from 0 to below 1, got {self.communication_share}",
                              key="physics.communication_share")  # fmt: skip
        if not 0 < self.between_nodes_gb_per_s < float("inf"):
            raise ConfigError(f"must be above 0, got {self.between_nodes_gb_per_s}",
                              key="physics.between_nodes_gb_per_s")  # fmt: skip
        check_words("insensitive", self.insensitive, "physics")

    def speed(self, snapshot: Snapshot, held: Assignments) -> Floats:
        """See protocols.Physics."""
        topology, sizes = snapshot.topology, snapshot.nodes.gpus.astype(np.int64).tobytes()
        gpus = snapshot.jobs.gpus[held.rows].tolist()
        best = np.array([_best_bandwidth(topology, sizes, count) for count in gpus])
        got = np.array([self._got(topology, place, count) for place, count in zip(places(held), gpus, strict=True)])
        known = (best > UNKNOWN) & (got > UNKNOWN) & topology_sensitive(snapshot, held.rows, self.insensitive)
        ratio = np.divide(best, got, out=np.ones(len(got)), where=known)
        return 1.0 / (1.0 + self.communication_share * (np.maximum(ratio, 1.0) - 1.0))

    def _got(self, topology: SiteTopology, place: Place, gpus: int) -> float:
        """Bandwidth of what a job holds [GB/s]."""
        nodes, masks = place
        if len(nodes) > 1:
            return self.between_nodes_gb_per_s
        known = class_at(topology, nodes[0])
        return _of_set(known, masks[0]) if known is not None and gpus > 1 else UNKNOWN


def _of_set(topology: GpuTopology, mask: int) -> float:
    return predicted_of(topology, mask) if topology.gpus <= ALL_RINGS else UNKNOWN


@lru_cache(maxsize=4_096)
def _best_bandwidth(topology: SiteTopology, sizes: bytes, gpus: int) -> float:
    """Bandwidth of the best set of that many GPUs of one node, were all free [GB/s]; UNKNOWN if none has that many, or
    if one of unknown wiring has. sizes: GPUs of each node, int64."""
    large = np.flatnonzero(np.frombuffer(sizes, np.int64) >= gpus).tolist()
    classes = {class_at(topology, node) for node in large}
    if gpus < 2 or None in classes or not classes:
        return UNKNOWN
    return max(_best_set(one, gpus) for one in classes if one is not None)


def _best_set(topology: GpuTopology, gpus: int) -> float:
    """Bandwidth of the best set of that many GPUs [GB/s], UNKNOWN where there is no prediction."""
    if topology.gpus > ALL_RINGS:
        return UNKNOWN
    return predicted_of(topology, fastest_set(topology, (1 << topology.gpus) - 1, gpus))


# Topology-aware.

_COSTS = placement.TopologyAware()


@dataclass(frozen=True, slots=True)
class SocketSpeed(ChangeCosts):
    """Run time grows with the normalised cost of communication, and by a factor beside another job on a socket.

    across_sockets: speed at the largest cost, two GPUs of two sockets; between it and 1 the run time follows the cost
        (see placements.topology_aware).
    beside: speed of a job of several GPUs while another job has GPUs on a socket of its own, however many: the paper
        takes the mean over pairs. Defaults: AlexNet, batch size 1, on 2 P100, in the profile published with the paper;
        beside is its mean over the eight programs beside it. A gang on several nodes that would fit on one has the
        largest cost; the paper has none.
    insensitive: words in names of models whose distance does not count (GoogLeNet's run times there differ by 1 %).
    Raises ConfigError for speeds outside 0 to 1.
    Source: Amaral et al., SC '17, sections 3 and 4.
    """

    shared: ClassVar[bool] = True

    across_sockets: float = 0.80
    beside: float = 0.80
    insensitive: tuple[str, ...] = ("googlenet",)

    def __post_init__(self) -> None:
        check_speed("across_sockets", self.across_sockets)
        check_speed("beside", self.beside)
        check_words("insensitive", self.insensitive, "physics")

    def speed(self, snapshot: Snapshot, held: Assignments) -> Floats:
        """See protocols.Physics."""
        far, near = self._far(snapshot, held), topology_sensitive(snapshot, held.rows, self.insensitive)
        longer = 1.0 + np.where(near, far, 0.0) * (1.0 / self.across_sockets - 1.0)
        return np.where(_disturbed(snapshot, held), self.beside, 1.0) / longer

    def _far(self, snapshot: Snapshot, held: Assignments) -> Floats:
        """Cost of communication of each job, 0 at the best set of its size, 1 at the worst. (R,)."""
        fits = nearest_levels(snapshot, held.rows) <= GpuDistance.NODE
        return np.array([_cost(snapshot, place, bool(fit)) for place, fit in zip(places(held), fits, strict=True)])


def _cost(snapshot: Snapshot, place: Place, fits_a_node: bool) -> float:
    nodes, masks = place
    if len(nodes) > 1:
        return float(fits_a_node)
    known = class_at(snapshot.topology, nodes[0])
    if known is None:
        return 0.0
    return (min(_COSTS.communication(known, tuple(mask_members(masks[0]))), 1.0) - LEAST_COST) / (1.0 - LEAST_COST)


def _disturbed(snapshot: Snapshot, held: Assignments) -> np.ndarray:
    """Jobs of several GPUs that share a socket with another job. (R,) bool."""
    on: dict[tuple[int, int], list[int]] = {}  # node and socket -> jobs, by their place in held
    for job, (nodes, masks) in enumerate(places(held)):
        for socket in {s for node, mask in zip(nodes, masks, strict=True) for s in _sockets(snapshot, node, mask)}:
            on.setdefault(socket, []).append(job)
    found = np.zeros(len(held.rows), np.bool_)
    for jobs in on.values():
        found[jobs] |= len(jobs) > 1
    return found & (snapshot.jobs.gpus[held.rows] > 1)


def _sockets(snapshot: Snapshot, node: int, mask: int) -> set[tuple[int, int]]:
    """The sockets of these GPUs; a node of unknown wiring is one socket."""
    known = class_at(snapshot.topology, node)
    return {(node, int(known.numa[g]) if known else 0) for g in mask_members(mask)}
