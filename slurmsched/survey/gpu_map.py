"""Every GPU of every node: who holds it, and which others NVLink or XGMI joins it with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.topology import GpuTopology, LinkKind
from slurmsched.placements.gpu_stock import class_of, class_rows
from slurmsched.resources.held import node_rows
from slurmsched.survey.overview import state_words
from slurmsched.survey.stock import BOOT, OPEN, UNREAD, free_masks, standings

FREE, HELD, CLOSED, STUCK = "free", "held", "closed", "stranded"
AFTER_BOOT, NOT_KNOWN = "boot", "unknown"


@dataclass(frozen=True, slots=True)
class Gpu:
    """what: FREE, HELD, CLOSED (free, but its node takes no job), STUCK (free, but no job can get it), AFTER_BOOT (free
    after a boot) or NOT_KNOWN (whether it is held cannot be read). job_id: 0
    where nobody holds it or it is not known who. group: number of its linked set within the node, -1 = not known."""

    index: int
    what: str
    job_id: int = 0
    user: str = ""
    group: int = -1


@dataclass(frozen=True, slots=True)
class NodeMap:
    """standing: as survey.stock.standings. exact: whether Slurm tells which GPUs are held; else only how many are."""

    name: str
    state: str
    standing: str
    gpu_types: str
    gpus: tuple[Gpu, ...]
    exact: bool

    @property
    def free(self) -> int:
        return sum(one.what == FREE for one in self.gpus)


def gpu_map(snapshot: Snapshot, stuck: frozenset[str] = frozenset()) -> tuple[NodeMap, ...]:
    """Nodes with GPUs, in their order. stuck: names of nodes whose free GPUs are stranded (survey.stranded)."""
    nodes, (_, known) = snapshot.nodes, free_masks(snapshot)
    holders, classes, used = _holders(snapshot), class_rows(snapshot), nodes.gpu_use()["allocated"]
    stands, made = standings(nodes), []
    for row in np.flatnonzero(nodes.gpus > 0).tolist():
        standing = stands[row]
        open_ = STUCK if nodes.name[row] in stuck else FREE
        left = {OPEN: open_, BOOT: AFTER_BOOT, UNREAD: NOT_KNOWN}.get(standing, CLOSED)
        gpus = _gpus(snapshot, row, holders.get(row, {}), left, bool(known[row]), int(used[row]))
        groups = _groups(snapshot, int(classes[row]), len(gpus))
        told = tuple(Gpu(g.index, g.what, g.job_id, g.user, group) for g, group in zip(gpus, groups, strict=True))
        made.append(NodeMap(nodes.name[row], state_words(int(nodes.state[row])), standing, nodes.gpu_types[row], told,
                            bool(known[row])))  # fmt: skip
    return tuple(made)


def _gpus(
    snapshot: Snapshot, row: int, holders: dict[int, tuple[int, str]], left: str, exact: bool, used: int
) -> list[Gpu]:
    """GPUs of a node. Where Slurm tells only how many are held, the first ones stand for them."""
    mask, count = int(snapshot.nodes.gpu_mask_used[row]), int(snapshot.nodes.gpus[row])
    taken = [bool(mask >> index & 1) if exact else index < used for index in range(count)]
    return [Gpu(i, HELD, *holders.get(i, (0, ""))) if taken[i] else Gpu(i, left) for i in range(count)]


def _holders(snapshot: Snapshot) -> dict[int, dict[int, tuple[int, str]]]:
    """Job and user by row of the node and index of the GPU."""
    held, jobs = snapshot.allocations, snapshot.jobs
    users = dict(zip(jobs.job_id.tolist(), jobs.user, strict=True))
    found: dict[int, dict[int, tuple[int, str]]] = {}
    for row, job, mask in zip(node_rows(snapshot).tolist(), held.job_id.tolist(), held.gpu_mask.tolist(), strict=True):
        found.setdefault(row, {}).update({index: (job, users.get(job, "")) for index in _bits(mask)})
    return found


def _bits(mask: int) -> Iterator[int]:
    return (index for index in range(mask.bit_length()) if mask >> index & 1)


def _groups(snapshot: Snapshot, row: int, gpus: int) -> tuple[int, ...]:
    one = class_of(snapshot.topology, row)
    return linked_groups(one) if one is not None and one.known and one.gpus == gpus else (-1,) * gpus


@lru_cache(maxsize=1 << 8)
def linked_groups(topology: GpuTopology) -> tuple[int, ...]:
    """Number of the set of GPUs that NVLink or XGMI joins, directly or through others, for each GPU, from 0 up."""
    group, found = [-1] * topology.gpus, 0
    for start in range(topology.gpus):
        if group[start] >= 0:
            continue
        reached = [start]
        while reached:
            at = reached.pop()
            group[at] = found
            linked = np.flatnonzero(topology.kind[at] >= LinkKind.XGMI).tolist()
            reached += [other for other in linked if group[other] < 0]
        found += 1
    return tuple(group)
