"""What Slurm would hand a job on each node, beside the best set that is free there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model import Picking, SiteTopology, Snapshot, Wish, frozen
from slurmsched.model.columns import Int64s
from slurmsched.placements.gpu_sets import domains, members_of
from slurmsched.placements.gpu_stock import MOST_GPUS, GpuStock
from slurmsched.placements.linked import Tables
from slurmsched.topology.gpu_types import TypedNode, surest
from slurmsched.topology.picker import UNKNOWN, Version, bools, pick
from slurmsched.topology.slurm_cores import cores_for
from slurmsched.topology.slurm_node import Form, GpuRequest, SlurmNode

NO_RANK = -1


@dataclass(frozen=True, slots=True)
class Pick:
    """One node. mask: GPUs that Slurm would give, 0 = none, or it cannot be told. rank: of that set, higher is better,
    of all classes alike: by its links, then by fewest NUMA nodes. best_rank: of the best free set there, -1 = too few
    are free. cores: taken of each socket. request: by Type, for which that holds; "" = the job's own."""

    mask: int = 0
    rank: int = NO_RANK
    best_rank: int = NO_RANK
    cores: tuple[int, ...] = ()
    request: str = ""


@dataclass(slots=True, eq=False)
class Picks:
    """Free GPUs and cores as a cycle gives them away, and what Slurm picks of them.

    free: (N,) int64 masks of GPUs that no job holds; 0 on nodes whose wiring or free cores are not known.
    rank: of all sets of all classes, where tables.set_at says. node_class: (N,) row of the site's classes that has a
    table of sets, -1 = none. retype: whether requests may be
    rewritten; else nothing is told of nodes of several Types.
    """

    picking: Picking
    tables: Tables
    rank: Int64s
    free: Int64s
    node_class: Int64s
    cores: list[tuple[int, ...]]
    retype: bool = False
    _known: dict[tuple[object, ...], Pick] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot, picking: Picking, *, retype: bool = False) -> Picks:
        """Of a snapshot whose picking is known."""
        stock, tables = GpuStock.of(snapshot), Tables.of(snapshot.topology, "smallest")
        has = np.append(tables.tabled, False)
        node_class = np.where(has[stock.node_class], stock.node_class, -1)
        told = np.array([bool(cores) for cores in picking.free_cores], np.bool_)
        whole = (np.int64(1) << snapshot.nodes.gpus.astype(np.int64)) - 1
        free = np.where(told & (node_class >= 0), whole & ~snapshot.nodes.gpu_mask_used, 0)
        return cls(picking, tables, _ranks(tables), free, node_class, list(picking.free_cores), retype)

    @classmethod
    def unknown(cls, snapshot: Snapshot) -> Picks:
        """Where nothing is known of what Slurm picks by."""
        nodes, tables = len(snapshot.nodes), Tables.of(SiteTopology(), "smallest")
        none, cores = frozen(np.full(nodes, -1), np.int64), ((),) * nodes
        return cls(Picking((), none, cores, (0, 0)), tables, none, np.zeros(nodes, np.int64), none, list(cores))

    def best_rank(self, node: int, gpus: int) -> int:
        """Rank of the best free set of so many GPUs on a node, -1 if fewer are free."""
        kind, tables = int(self.node_class[node]), self.tables
        if kind < 0 or int(self.free[node]).bit_count() < gpus:
            return NO_RANK
        return int(self.rank[tables.set_at[kind] + tables.take(kind, int(self.free[node]), gpus)])

    def pick(self, node: int, wish: Wish, gpus: int) -> Pick:
        """What Slurm would give on this node now. Nodes that are alike in all that counts are worked out once."""
        kind = int(self.picking.node_kind[node])
        if kind < 0 or int(self.free[node]).bit_count() < gpus:
            return Pick()
        like = replace(wish, job_id=0, submit_s=0.0)
        key = (kind, int(self.node_class[node]), int(self.free[node]), self.cores[node], like, gpus)
        if key not in self._known:
            self._known[key] = self._pick(node, self.picking.kinds[kind], wish, gpus)
        return self._known[key]

    def take(self, node: int, pick: Pick) -> None:
        """A job takes this pick."""
        self.free[node] &= ~pick.mask
        self.cores[node] = tuple(max(0, n - k) for n, k in zip(self.cores[node], pick.cores, strict=True))

    def shut(self, node: int) -> None:
        """What is free here cannot be told any more."""
        self.free[node] = 0

    def _pick(self, node: int, shape: SlurmNode | TypedNode, wish: Wish, gpus: int) -> Pick:
        if isinstance(shape, TypedNode):
            return self._surest(node, shape, wish, gpus)
        free, cores = int(self.free[node]), self.cores[node]
        best = self.best_rank(node, gpus)
        given = {_picked(shape, request, free, cores, self.picking.version) for request in _requests(wish)}
        mask = given.pop() if len(given) == 1 else UNKNOWN
        if mask <= 0 or mask.bit_count() != gpus:
            return Pick(best_rank=best)
        taken = cores_for(shape, _requests(wish)[0], bools(free, shape.gpus), cores)
        at = self.tables.set_at[self.node_class[node]]
        spent = tuple(map(int, taken)) if taken is not None else (0,) * len(cores)
        return Pick(mask, int(self.rank[at + mask]), best, spent)

    def _surest(self, node: int, shape: TypedNode, wish: Wish, gpus: int) -> Pick:
        """What the job gets by the best request by Type. Its cores are taken wherever Slurm finds them."""
        best, kind, free = self.best_rank(node, gpus), int(self.node_class[node]), int(self.free[node])
        if not (self.retype and _may_retype(wish, gpus) and kind >= 0 and shape.gpus == self.tables.classes[kind].gpus):
            return Pick(best_rank=best)
        at = int(self.tables.set_at[kind])
        rank = self.rank[at : at + (1 << shape.gpus)]
        sure = surest(shape.types, free, gpus, rank, self.tables.take(kind, free, gpus))
        return Pick(sure.mask, sure.rank, best, (0,), sure.request) if sure else Pick(best_rank=best)


@lru_cache(maxsize=16)
def _ranks(tables: Tables) -> Int64s:
    """Ranks of the tables' sets, of equal ones that on fewer NUMA nodes first. Same shape."""
    classes = [one for one, has in zip(tables.classes, tables.tabled, strict=True) if has]
    spans = np.concatenate([domains(one.numa, members_of(one.gpus)) for one in classes] or [np.zeros(0, np.int64)])
    found: Int64s = tables.rank * (MOST_GPUS + 1) + MOST_GPUS - spans
    return found


def _may_retype(wish: Wish, gpus: int) -> bool:
    """Whether all that a job asks for by node is so many GPUs of any Type, near its cores or not."""
    return wish.asks == f"gpu:{gpus}" and wish.form == Form.PER_NODE and wish.alone and not wish.bound


def _requests(wish: Wish) -> list[GpuRequest]:
    """The requests that the wish may be: Slurm does not tell one task from none given."""
    tasks: Iterable[int] = (wish.tasks,) if wish.tasks > 1 else (0, 1)
    form = Form(wish.form)
    return [GpuRequest(form, wish.count, n, wish.cpus_per_task, wish.sockets, wish.bound) for n in tasks]


def _picked(node: SlurmNode, request: GpuRequest, free: int, cores: tuple[int, ...], version: Version) -> int:
    try:
        return pick(node, request, free, cores, version)
    except ConfigError:
        return UNKNOWN
