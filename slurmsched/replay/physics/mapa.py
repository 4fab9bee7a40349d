"""MAPA: jobs that depend on bandwidth run as fast as their ring lets them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model import Assignments, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.model.topology import GpuTopology, SiteTopology
from slurmsched.placements.mapa import ALL_RINGS, fastest_set, predicted_of
from slurmsched.policies.checks import check_words
from slurmsched.replay.physics.costs import Costs, caring
from slurmsched.replay.physics.levels import Place, class_at, places

UNKNOWN = 0.0  # GB/s where nothing tells one set from another


@dataclass(frozen=True, slots=True)
class Mapa(Costs):
    """A share of the run time is communication, and goes with the inverse of the predicted bandwidth of the ring.

    The recorded run time is taken as that at the best set of the cluster's nodes for the job's size.
    communication_share: of the run time there. Default: at 0.115 a pair on PCIe instead of a double NVLink (10.4 and
    58.9 GB/s by the fit) takes 1.54 times as long, the inverse of the 35 % that the paper saves at most.
    between_nodes_gb_per_s: of a gang on several nodes, 100 Gbit/s; the paper has none. insensitive: words in names of
    models that are not sensitive to bandwidth, the paper's by default. Classes of more than 8 GPUs, for which there
    is no prediction, and nodes of unknown wiring slow nobody. Raises ConfigError for a share or bandwidth that is none.
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
        best = np.array([_best(topology, sizes, count) for count in gpus])
        got = np.array([self._got(topology, place, count) for place, count in zip(places(held), gpus, strict=True)])
        told = (best > UNKNOWN) & (got > UNKNOWN) & caring(snapshot, held.rows, self.insensitive)
        ratio = np.divide(best, got, out=np.ones(len(got)), where=told)
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
def _best(topology: SiteTopology, sizes: bytes, gpus: int) -> float:
    """Bandwidth of the best set of so many GPUs of one node, were all free [GB/s]; UNKNOWN if none has so many, or
    if one of unknown wiring has. sizes: GPUs of each node, int64."""
    large = np.flatnonzero(np.frombuffer(sizes, np.int64) >= gpus).tolist()
    classes = {class_at(topology, node) for node in large}
    if gpus < 2 or None in classes or not classes:
        return UNKNOWN
    return max(_best_set(one, gpus) for one in classes if one is not None)


def _best_set(topology: GpuTopology, gpus: int) -> float:
    """Bandwidth of the best set of so many GPUs [GB/s], UNKNOWN where there is no prediction."""
    if topology.gpus > ALL_RINGS:
        return UNKNOWN
    return predicted_of(topology, fastest_set(topology, (1 << topology.gpus) - 1, gpus))
