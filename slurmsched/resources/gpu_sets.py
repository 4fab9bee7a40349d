"""Tables of best GPU sets: one for each class of nodes, made once, stored on disk, looked up by free set and number."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from slurmsched.errors import InputError
from slurmsched.kernels.gpu_set_search import best_sets, grown_set, ring_order, rings
from slurmsched.model.columns import Bools, Floats, Int64s, frozen, made_read_only
from slurmsched.model.gpu_masks import mask_members
from slurmsched.model.gpu_topology import GpuTopology, LinkKind
from slurmsched.paths import create, draft_of, dropped

Objective = Literal["smallest", "sum"]
TABLE_GPUS = 16  # classes of more GPUs have no table: it would have 3**G entries to look at
_FORM = 1  # of the files; another number when what they hold changes meaning
_KINDS = 16  # link kinds fit below this: they decide between links of equal bandwidth
_LANE_GB_PER_S = 20.0  # of an NVLink lane of its first generation, one direction: the least one can be
_GB_PER_S = np.array([0.0, 8.0, 9.0, 10.0, 11.0, 12.0, 0.0, 0.0])  # by LinkKind, PCIe 3 of 16 lanes: only their order


@dataclass(frozen=True, slots=True, eq=False)
class SetTable:
    """What is known of the sets of GPUs of one class of G <= 16 GPUs. Sets are bit masks, bit i for GPU index i.

    best: (2**G, G + 1) uint16, the k GPUs to take of a free set, 0 if it has fewer.
    worth: (2**G,) int64, what a free set is good for (see gpu_set_search.best_sets).
    quality: (2**G, 3) int64 of a set as a job's: minus its GPUs off the fabric, smallest link and sum of links of its
        best ring in MB/s times 16.
    """

    best: NDArray[np.uint16]
    worth: Int64s
    quality: Int64s


def link_weights(topology: GpuTopology) -> Int64s:
    """Links as whole numbers, so that equal sums are equal: bandwidth in MB/s times 16, plus the link kind. (G, G).

    A bandwidth that is unknown is taken from kind and lanes. If that of any NVLink or XGMI link is, all are, lest a
    known PCIe link look faster than a link of unknown speed.
    """
    direct = topology.kind >= LinkKind.XGMI
    given = topology.bandwidth_gb_per_s
    nominal = np.where(direct, np.maximum(topology.lanes, 1) * _LANE_GB_PER_S, _GB_PER_S[topology.kind])
    gb_per_s = np.where((given > 0) & ~(direct & (given <= 0)).any(), given, nominal)
    weight = np.rint(gb_per_s * 1_000.0).astype(np.int64) * _KINDS + topology.kind
    np.fill_diagonal(weight, 0)
    return weight


def gb_per_s(weights: Any) -> Floats:
    """Link weights, or sums of them, as bandwidth [GB/s], the link kinds left out up to 0.01 GB/s a link."""
    return np.floor(np.asarray(weights) / _KINDS) / 1_000.0


def link_kind(weight: int) -> LinkKind:
    """The kind of a link of this weight."""
    return LinkKind(weight % _KINDS)


def link_floors(weight: Int64s, objective: Objective = "smallest") -> Int64s:
    """Distinct link weights, descending; the lightest alone where only sums count. (L,) int64."""
    links = np.unique(weight[~np.eye(len(weight), dtype=np.bool_)])[::-1]
    return np.ascontiguousarray(links if objective == "smallest" else links[-1:])


def best_ring(topology: GpuTopology, gpus: tuple[int, ...]) -> tuple[int, ...]:
    """These GPUs in the order of the best ring: heaviest smallest link, then sum. At most 16 at once, else as given."""
    if len(gpus) > TABLE_GPUS:
        return gpus
    weight = np.ascontiguousarray(link_weights(topology)[np.ix_(gpus, gpus)])
    return tuple(gpus[i] for i in ring_order(weight, link_floors(weight)).tolist())


def large_set(topology: GpuTopology, free: int, gpus: int) -> int:
    """A good, not a proven best, set of a class of more than 16 GPUs, as a mask; 0 if too few are free."""
    return int(grown_set(link_weights(topology), topology.on_fabric, free, gpus))


def set_table(topology: GpuTopology, objective: Objective = "smallest") -> SetTable:
    """The table of a class of at most 16 GPUs; from memory, from the user's cache folder, or made now (seconds).

    objective: "smallest" link of the ring first, then the sum; or the "sum" alone, as MAPA's Greedy counts.
    """
    return _table(_Source.of(topology, objective))


def members_of(gpus: int) -> Int64s:
    """(2**G, G) int64: 1 where the set holds the GPU."""
    return (np.arange(1 << gpus)[:, None] >> np.arange(gpus) & 1).astype(np.int64)


def domains(numa: NDArray[Any], member: Int64s) -> Int64s:
    """NUMA nodes that each set touches; GPUs of unknown NUMA node count for none. (2**G,) int64."""
    spans = np.zeros(len(member), np.int64)
    for node in np.unique(numa[numa >= 0]):
        spans += member[:, numa == node].any(axis=1)
    return spans


def slowest_link(table: SetTable, members: int) -> LinkKind:
    """The kind of the smallest link of the best ring through a set of at least two GPUs."""
    return LinkKind(int(table.quality[members, 1]) % _KINDS)


def cache_folder() -> Path:
    """Where tables are kept between runs. They can be deleted at any time."""
    from platformdirs import user_cache_path  # late: few commands need it

    return user_cache_path("slurmsched") / "gpu-sets"


@dataclass(frozen=True, slots=True)
class _Source:
    """All that a table depends on; equal sources share one table."""

    digest: str
    gpus: int
    bytes_: bytes
    objective: Objective

    @classmethod
    def of(cls, topology: GpuTopology, objective: Objective) -> _Source:
        columns = (link_weights(topology), topology.numa.astype(np.int64), topology.on_fabric.astype(np.int64))
        held = b"".join(column.tobytes() for column in columns)
        mark = repr((_FORM, topology.gpus, objective)).encode()
        return cls(hashlib.blake2b(mark + held, digest_size=12).hexdigest(), topology.gpus, held, objective)

    def columns(self) -> tuple[Int64s, Int64s, Int64s]:
        """Link weights, NUMA nodes, on the fabric."""
        values, gpus = np.frombuffer(self.bytes_, np.int64), self.gpus
        links = gpus * gpus
        return values[:links].reshape(gpus, gpus), values[links : links + gpus], values[links + gpus :]


@lru_cache(maxsize=256)
def _table(source: _Source) -> SetTable:
    folder = cache_folder()
    paths = {name: folder / f"{source.digest}.{name}.npy" for name in SetTable.__slots__}
    with suppress(OSError, ValueError):
        return SetTable(**{name: np.load(path, mmap_mode="r") for name, path in paths.items()})
    made = _made_table(source)
    with suppress(OSError):  # a cache that cannot be written costs time at the next start, no more
        folder.mkdir(parents=True, exist_ok=True)
        for name, path in paths.items():
            _keep(path, getattr(made, name))
    return made


def _keep(path: Path, column: NDArray[Any]) -> None:
    """Whole or not at all, whoever else writes it."""
    draft = draft_of(path)
    try:
        with create(draft) as file:
            np.save(file, column)
        draft.replace(path)
    finally:
        dropped(draft)


def _made_table(source: _Source) -> SetTable:
    weight, numa, on_fabric = source.columns()
    smallest, total = (
        rings(weight, link_floors(weight, source.objective)) if source.gpus > 1 else _tables_without_links(source.gpus)
    )
    member = members_of(source.gpus)
    size = member.sum(axis=1)
    off = np.where(size > 1, member @ (1 - on_fabric), 0)
    spans = domains(numa, member)
    first = smallest if source.objective == "smallest" else np.zeros_like(smallest)
    key = np.stack([-off, first, total, -spans], axis=1)
    best, worth = best_sets(size, key, total)
    quality = np.stack([-off, smallest, total], axis=1)
    return SetTable(*(frozen(column, column.dtype) for column in (best, worth, quality)))


def _tables_without_links(gpus: int) -> tuple[Int64s, Int64s]:
    return np.zeros(1 << gpus, np.int64), np.zeros(1 << gpus, np.int64)


# How good each set of a node's GPUs is.

RING_GPUS = 8  # of a table of rings: a file with a line for each set


@dataclass(frozen=True, slots=True, eq=False)
class SetRanks:
    """By mask of GPUs, 0 to 2**G - 1.

    rank: (2**G,) int64, larger is better among sets of one size, by the criteria of gpu_set_search.best_sets.
    ring_gb_per_s, total_gb_per_s: (2**G,) float64, smallest link and sum of links of the best ring.
    best: as SetTable.best, the best set of each size in each free set.
    known: (2**G,) bool, whether the link of every pair in the set is told: of sets of free GPUs with another one it is
        not known which set is the best.
    """

    rank: Int64s
    ring_gb_per_s: Floats
    total_gb_per_s: Floats
    best: NDArray[np.uint16]
    known: Bools


def unknown_links(topology: GpuTopology) -> list[tuple[int, int]]:
    """Pairs whose link is unknown; i < j."""
    bare = (topology.kind == LinkKind.UNKNOWN) & (topology.bandwidth_gb_per_s == 0)
    return [(i, j) for i, j in np.argwhere(np.triu(bare, 1)).tolist()]


def set_ranks(topology: GpuTopology) -> SetRanks:
    """The ranks of all sets. Raises InputError for more than 16 GPUs, or where no link has a bandwidth."""
    _check_size(topology, TABLE_GPUS)
    table = set_table(topology)
    spans = domains(topology.numa, members_of(topology.gpus))
    rank = np.unique(np.column_stack([table.quality, -spans]), axis=0, return_inverse=True)[1]
    smallest, total = gb_per_s(table.quality[:, 1]), gb_per_s(table.quality[:, 2])
    known = np.ones(len(rank), np.bool_)
    for i, j in unknown_links(topology):
        known &= (np.arange(len(rank)) & (1 << i | 1 << j)) != (1 << i | 1 << j)
    ranks = made_read_only(rank.reshape(-1).astype(np.int64))
    return SetRanks(ranks, made_read_only(smallest), made_read_only(total), table.best, made_read_only(known))


def ring_table(topology: GpuTopology) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Sets of GPUs whose best ring is better than that of their numbers' order, with it. Raises as `set_ranks`, for
    more than 8 GPUs."""
    _check_size(topology, RING_GPUS)
    weight = link_weights(topology)
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    for size in range(4, topology.gpus + 1):  # through three GPUs there is but one ring
        for members in combinations(range(topology.gpus), size):
            best = best_ring(topology, members)
            if _ring_worth(weight, best) > _ring_worth(weight, members):
                found[members] = best
    return found


def _ring_worth(weight: Int64s, order: tuple[int, ...]) -> tuple[int, int]:
    """Smallest link of a ring, then the sum of its links."""
    links = [int(weight[a, b]) for a, b in pairwise((*order, order[0]))]
    return min(links), sum(links)


def _check_size(topology: GpuTopology, most: int) -> None:
    if not 2 <= topology.gpus <= most:
        raise InputError(f"{topology.name} has {topology.gpus} GPUs; this works for 2 to {most}")
    if not topology.bandwidth_gb_per_s.any():
        raise InputError(f"no link of {topology.name} has a known bandwidth; name the model with --gpu-type")


# Sets of free GPUs of one node.


@dataclass(frozen=True, slots=True)
class RingLink:
    """The smallest link on the best ring through a set. gb_per_s: one direction, 0 = the model's is not known."""

    kind: LinkKind
    gb_per_s: float

    @property
    def direct(self) -> bool:
        """Whether NVLink or XGMI joins the whole ring."""
        return self.kind >= LinkKind.XGMI


def best_set(topology: GpuTopology, free: int, gpus: int) -> int:
    """The best set of that many free GPUs as a mask, 0 if there are too few; of classes over 16 GPUs a good one."""
    if topology.gpus > TABLE_GPUS:
        return large_set(topology, free, gpus)
    return int(set_table(topology).best[free, gpus]) if gpus <= topology.gpus else 0


@lru_cache(maxsize=1 << 14)
def ring_link(topology: GpuTopology, mask: int) -> RingLink | None:
    """The smallest link of the best ring of at least two GPUs; None for one GPU, or if the wiring is unknown."""
    if mask.bit_count() < 2 or not topology.known:
        return None
    if topology.gpus <= TABLE_GPUS:
        weight = int(set_table(topology).quality[mask, 1])
    else:
        order = best_ring(topology, tuple(mask_members(mask)))
        weights = link_weights(topology)
        weight = min(int(weights[a, b]) for a, b in zip(order, (*order[1:], order[0]), strict=True))
    given = bool(topology.bandwidth_gb_per_s.any())
    return RingLink(link_kind(weight), float(gb_per_s(weight)) if given else 0.0)


@lru_cache(maxsize=1 << 14)
def largest_linked(topology: GpuTopology, free: int) -> int:
    """The most free GPUs that a ring of NVLink or XGMI joins: 1 where no two are, 0 where none is free."""
    for gpus in range(free.bit_count(), 1, -1):
        link = ring_link(topology, best_set(topology, free, gpus))
        if link is not None and link.direct:
            return gpus
    return min(1, free.bit_count())
