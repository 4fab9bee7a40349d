"""A gres.conf under which Slurm's own pick is the best set in as many states as can be: Links and order of lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from slurmsched.kernels.slurm_pick import ANY
from slurmsched.kernels.slurm_search import most_good_seeds, seeds_met
from slurmsched.model.columns import Int32s, Int64s
from slurmsched.model.topology import GpuTopology
from slurmsched.placements.gpu_stock import bit_counts
from slurmsched.placements.set_ranks import SetRanks
from slurmsched.topology.picker import REVERSED_LINKS, Version
from slurmsched.topology.slurm_check import States, picks_in
from slurmsched.topology.slurm_node import Form, SlurmNode

VALUES = (0, 1, 2, 3, 4, 6, 9, 16)  # Links tried for each kind of link
MOST_LINES = 8  # of which every order is tried
MOST_KINDS = 4  # of link; more are tried pair by pair only


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """What was found. order: (G,) int32, the GPU at each line. node: Links by GPU, not yet in that order.

    states: all of them. best_states: those in which the pick is the best set. bound: what no such file can exceed.
    tried: files that were scored.
    """

    node: SlurmNode
    order: Int32s
    states: int
    best_states: int
    bound: int
    tried: int

    @property
    def proven(self) -> bool:
        """Whether no file can do better, in the states looked at."""
        return self.best_states == self.bound


@dataclass(slots=True)
class _Search:
    node: SlurmNode
    ranks: SetRanks
    states: States
    form: Form
    version: Version
    bound: int
    most: int
    reorder: bool
    tried: int = 0
    score: int = -1
    links: Int32s | None = None
    order: Int32s | None = None

    @property
    def over(self) -> bool:
        return self.score >= self.bound or self.tried >= self.most

    def trial(self, links: Int32s | None, order: Int32s, level: bool = False) -> bool:
        """Score a file; keep it if it is better, or with `level` as good."""
        self.tried += 1
        given = picks_in(_with(self.node, links), self.states, self.form, self.version, order)
        score = int((self.ranks.rank[given] == self.states.best).sum())
        better = score > self.score or (level and score == self.score)
        if better:
            self.score, self.links, self.order = score, links, order
        return better


def compile_links(
    node: SlurmNode, topology: GpuTopology, ranks: SetRanks, states: States, form: Form, version: Version,
    reorder: bool = False, most: int = 6000,
) -> Compiled:  # fmt: skip
    """Search: a Links value for each kind of link, then single pairs (and lines) changed while nothing gets worse.

    reorder: lines may change places. Only for sites with ConstrainDevices: without it Slurm gives a job the number of
    the line as CUDA_VISIBLE_DEVICES, not that of the device. At most `most` files are scored; it ends at once at the
    bound. The same input gives the same file.
    """
    bound = bound_of(node, ranks, states, form, version, reorder)
    search = _Search(node, ranks, states, form, version, bound, most, reorder)
    own = np.arange(node.gpus, dtype=np.int32)
    search.trial(node.links if node.linked else None, own)
    for links in (None, *by_kind(topology)):
        if search.over:
            break
        search.trial(links, own)
    _climb(search, np.random.default_rng(1))
    assert search.order is not None
    return Compiled(_with(node, search.links), search.order, len(states), search.score, search.bound, search.tried)


def by_kind(topology: GpuTopology) -> Iterator[Int32s]:
    """Links matrices that give every pair of equal bandwidth the same value."""
    kinds, kind = np.unique(topology.bandwidth_gb_per_s, return_inverse=True)
    kind = kind.reshape(topology.bandwidth_gb_per_s.shape)
    apart = ~np.eye(topology.gpus, dtype=bool)
    used = sorted(set(kind[apart].tolist()))
    for values in product(VALUES, repeat=len(used) if len(used) <= MOST_KINDS else 0):
        if 0 not in values and len(values) > 1:
            continue  # only differences count
        value = np.zeros(len(kinds), np.int32)
        value[used[: len(values)]] = values
        yield _ruled(value[kind])


def _climb(search: _Search, draw: np.random.Generator) -> None:
    """Change one pair's Links, or the places of two lines, and keep what is not worse."""
    gpus = search.node.gpus
    while not search.over:
        assert search.order is not None
        order, links = search.order.copy(), search.links
        a, b = draw.choice(gpus, 2, replace=False)
        if search.reorder and draw.random() < 0.4:
            order[a], order[b] = order[b], order[a]
        else:
            links = _ruled(np.zeros((gpus, gpus), np.int32) if links is None else links)
            links[a, b] = links[b, a] = int(draw.choice(VALUES))
        search.trial(links, order, level=True)


def bound_of(
    node: SlurmNode, ranks: SetRanks, states: States, form: Form, version: Version, reorder: bool = False
) -> int:  # fmt: skip
    """States that no Links can exceed, nor with `reorder` any order of lines.

    Slurm fills the sockets of the job's cores before others, whatever Links say; and but for --gpus=N the first GPU
    it takes there is the one with the lowest index. So a state counts if a best set keeps to those sockets and holds
    a good first GPU; with `reorder` all orders of up to eight lines are tried, and of more any first GPU counts.
    """
    starts, good = np.zeros(len(states), np.int64), np.zeros(len(states), np.int64)
    alike = {best: np.flatnonzero(ranks.rank == best) for best in set(states.best.tolist())}
    masks = {s: sum(1 << g for g in range(node.gpus) if node.socket[g] == s) for s in range(ANY, node.sockets)}
    for t in range(len(states)):
        free, cores = int(states.free[t]), states.cores[t]
        used = [s for s in range(node.sockets) if cores[s]]
        near = free & (masks[ANY] | sum(masks[s] for s in used))
        starts[t] = next((free & masks[s] for s in (*used, ANY) if free & masks[s]), free)
        good[t] = _good(alike[int(states.best[t])], free, near, int(states.need[t])) & starts[t]
    several = bool(((states.cores > 0).sum(axis=1) > 1).any())
    if form is Form.PER_JOB or (several and version < REVERSED_LINKS) or (reorder and node.gpus > MOST_LINES):
        return int((good > 0).sum())
    if reorder:
        return int(most_good_seeds(starts, good, node.gpus))
    return int(seeds_met(np.arange(node.gpus), starts, good))


def _good(best: Int64s, free: int, near: int, need: int) -> int:
    """GPUs of some best set that holds near GPUs only or, where they are too few, all of them. best: masks of the sets
    that are as good as the best free one."""
    fits = best[(best & ~np.int64(free) == 0) & (bit_counts(best) == need)]
    held = fits & ~np.int64(near) == 0 if near.bit_count() >= need else ~fits & np.int64(near) == 0
    return int(np.bitwise_or.reduce(fits[held], initial=0))


def _with(node: SlurmNode, links: Int32s | None) -> SlurmNode:
    none = np.zeros((node.gpus, node.gpus), np.int32)
    return replace(node, links=none if links is None else links, linked=links is not None)


def _ruled(links: Int64s | Int32s) -> Int32s:
    """A copy as Links want it: -1 in its own place."""
    made: Int32s = np.array(links, np.int32)
    np.fill_diagonal(made, -1)
    return made
