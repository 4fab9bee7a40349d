"""Compiles a gres.conf with which Slurm picks the best GPUs as often as possible: Links, order of lines, GRES Types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from slurmsched.kernels.slurm_gpu_pick import ANY, most_good_seeds, seeds_met
from slurmsched.model.columns import Int32s, Int64s
from slurmsched.model.gpu_masks import bit_counts
from slurmsched.model.gpu_topology import GpuTopology, LinkKind
from slurmsched.resources.gpu_sets import SetRanks
from slurmsched.topology.gres_nodes import best_share, conf_lines
from slurmsched.topology.selection_quality import MOST_GPUS_EXHAUSTIVE, FreeGpuStates, picks_in
from slurmsched.topology.slurm_selection import REVERSED_LINKS, GpuOption, SlurmNode, SlurmVersion
from slurmsched.topology.topology_files import NodeClass
from slurmsched.topology.topology_text import connected_groups

LINK_VALUES = (0, 1, 2, 3, 4, 6, 9, 16)  # values of Links that are tried
MOST_LINES = 8  # of which every order is tried
MOST_KINDS = 4  # of link; more are tried pair by pair only


@dataclass(frozen=True, slots=True, eq=False)
class CompiledLinks:
    """The result of a search.

    node: with Links by GPU, not yet in the order of lines.
    order: (G,) int32, the GPU at each line.
    states: number of states.
    best_states: those in which the pick is a best set.
    bound: upper limit of best_states for any file.
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
        """Whether no file can be better, in these states."""
        return self.best_states == self.bound


@dataclass(slots=True)
class _LinkSearch:
    node: SlurmNode
    ranks: SetRanks
    states: FreeGpuStates
    form: GpuOption
    version: SlurmVersion
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
        """Score a file. Keep it if it is better, or with `level` also if it is as good."""
        self.tried += 1
        given = picks_in(_with_links(self.node, links), self.states, self.form, self.version, order)
        score = int((self.ranks.rank[given] == self.states.best).sum())
        better = score > self.score or (level and score == self.score)
        if better:
            self.score, self.links, self.order = score, links, order
        return better


# Over 30 lines: more than half is signature and docstring.
def compile_links(
    node: SlurmNode,
    topology: GpuTopology,
    ranks: SetRanks,
    states: FreeGpuStates,
    form: GpuOption,
    version: SlurmVersion,
    reorder: bool = False,
    most: int = 6000,
) -> CompiledLinks:
    """Search first a Links value for each kind of link, then change single pairs (and lines) while nothing gets worse.

    The search ends at the bound. The same input gives the same file.

    reorder: whether lines may change places. Only for sites with ConstrainDevices: without it Slurm puts the number of
        the line into CUDA_VISIBLE_DEVICES, not that of the device.
    most: files that are scored at most.
    """
    bound = bound_of(node, ranks, states, form, version, reorder)
    search = _LinkSearch(node, ranks, states, form, version, bound, most, reorder)
    own = np.arange(node.gpus, dtype=np.int32)
    search.trial(node.links if node.linked else None, own)
    for links in (None, *by_kind(topology)):
        if search.over:
            break
        search.trial(links, own)
    _climb(search, np.random.default_rng(1))
    assert search.order is not None
    return CompiledLinks(
        _with_links(node, search.links), search.order, len(states), search.score, search.bound, search.tried
    )


def by_kind(topology: GpuTopology) -> Iterator[Int32s]:
    """Links matrices in which pairs of equal bandwidth have the same value."""
    kinds, kind = np.unique(topology.bandwidth_gb_per_s, return_inverse=True)
    kind = kind.reshape(topology.bandwidth_gb_per_s.shape)
    apart = ~np.eye(topology.gpus, dtype=bool)
    used = sorted(set(kind[apart].tolist()))
    for values in product(LINK_VALUES, repeat=len(used) if len(used) <= MOST_KINDS else 0):
        if 0 not in values and len(values) > 1:
            continue  # only differences count
        value = np.zeros(len(kinds), np.int32)
        value[used[: len(values)]] = values
        yield _with_diagonal(value[kind])


def _climb(search: _LinkSearch, draw: np.random.Generator) -> None:
    """Change the Links of one pair, or swap two lines. Keep the change if it is not worse."""
    gpus = search.node.gpus
    while not search.over:
        assert search.order is not None
        order, links = search.order.copy(), search.links
        a, b = draw.choice(gpus, 2, replace=False)
        if search.reorder and draw.random() < 0.4:
            order[a], order[b] = order[b], order[a]
        else:
            links = _with_diagonal(np.zeros((gpus, gpus), np.int32) if links is None else links)
            links[a, b] = links[b, a] = int(draw.choice(LINK_VALUES))
        search.trial(links, order, level=True)


def bound_of(
    node: SlurmNode,
    ranks: SetRanks,
    states: FreeGpuStates,
    form: GpuOption,
    version: SlurmVersion,
    reorder: bool = False,
) -> int:
    """Upper limit of states with a best pick, for any Links and, with `reorder`, any order of lines.

    Slurm fills the sockets of the job's cores first, whatever Links say. Except for --gpus=N it starts there from the
    lowest index. So a state counts if a best set is within those sockets and contains a possible first GPU. With
    `reorder` all orders of up to eight lines are tried; with more lines any first GPU counts.
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
    if form is GpuOption.PER_JOB or (several and version < REVERSED_LINKS) or (reorder and node.gpus > MOST_LINES):
        return int((good > 0).sum())
    if reorder:
        return int(most_good_seeds(starts, good, node.gpus))
    return int(seeds_met(np.arange(node.gpus), starts, good))


def _good(best: Int64s, free: int, near: int, need: int) -> int:
    """GPUs of the best sets that use near GPUs only or, if there are too few, all of them.

    best: masks of the sets that are as good as the best free one."""
    fits = best[(best & ~np.int64(free) == 0) & (bit_counts(best) == need)]
    held = fits & ~np.int64(near) == 0 if near.bit_count() >= need else ~fits & np.int64(near) == 0
    return int(np.bitwise_or.reduce(fits[held], initial=0))


def _with_links(node: SlurmNode, links: Int32s | None) -> SlurmNode:
    none = np.zeros((node.gpus, node.gpus), np.int32)
    return replace(node, links=none if links is None else links, linked=links is not None)


def _with_diagonal(links: Int64s | Int32s) -> Int32s:
    """A copy with -1 on the diagonal, as in Links."""
    made: Int32s = np.array(links, np.int32)
    np.fill_diagonal(made, -1)
    return made


# GRES Types where no Links suffice.

# Works on slurmctld 24.11.5 and 26.05.5, tried: "" takes the job's own request away.
JOB_SUBMIT = """\
function slurm_job_submit(job, partitions, uid)
   local gpus = job.tres_per_job
   if gpus and string.match(gpus, "^gres[:/]gpu[^,]*$") and not job.tres_per_node
         and job.min_nodes == 1 and job.max_nodes == 1 then
      job.tres_per_node = gpus
      job.tres_per_job = ""
   end
   return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
   return slurm.SUCCESS
end
"""


def linked_islands(wiring: GpuTopology) -> tuple[tuple[int, ...], ...]:
    """Groups of GPUs that are linked better among themselves, ascending; () if there is only one group.

    These are GPUs joined by NVLink or XGMI, over any chain; if that is all of them, those of one NUMA node.
    """
    direct = np.argwhere(wiring.kind >= LinkKind.XGMI).tolist()
    of = connected_groups(wiring.gpus, direct)
    if len(set(of)) == 1:
        of = [int(node) for node in wiring.numa]
    groups = [tuple(g for g in range(wiring.gpus) if of[g] == one) for one in dict.fromkeys(of)]
    apart = -1 not in of and len(groups) > 1 and any(len(group) > 1 for group in groups)
    return tuple(groups) if apart else ()


def type_groups(wiring: GpuTopology, rank: Int64s) -> tuple[tuple[int, ...], ...]:
    """Groups of GPUs that get a Type each, so that a request by Type reaches the best set in every state.

    These are the islands if they are enough and each is a run of indices, since Slurm numbers GPUs Type by Type.
    Otherwise, and on nodes with more than nine GPUs, each GPU is a group. rank: (2**G,) int64 of set_ranks.
    """
    groups = linked_islands(wiring)
    runs = [gpu for group in groups for gpu in group] == list(range(wiring.gpus))
    names = tuple(str(at) for at, group in enumerate(groups) for _ in group)
    alone = tuple((gpu,) for gpu in range(wiring.gpus))
    looked = wiring.gpus <= MOST_GPUS_EXHAUSTIVE and bool(groups) and runs
    return groups if looked and best_share(names, rank) == 1.0 else alone


def typed_lines(one: NodeClass, node: SlurmNode, groups: Sequence[Sequence[int]]) -> list[str]:
    """Lines of gres.conf with a Type for each group, and the matching lines of slurm.conf as comments."""
    kind = one.devices[0].type or "gpu"
    names = [f"{kind}_{'i' if len(groups) < node.gpus else 'g'}{at}" for at in range(len(groups))]
    name = {gpu: names[at] for at, group in enumerate(groups) for gpu in group}
    devices = tuple(replace(device, type=name[gpu]) for gpu, device in enumerate(one.devices))
    counts = ",".join(f"gpu:{name}:{len(group)}" for name, group in zip(names, groups, strict=True))
    pair = f"gpu:{names[0]}:2" if len(groups[0]) > 1 else ",".join(f"gpu:{name}:1" for name in names[:2])
    plain = replace(node, linked=False)  # a request by Type is unambiguous; Links would interfere
    return [
        *conf_lines(replace(one, devices=devices), plain),
        f"# slurm.conf, NodeName line: Gres={counts}",
        "# slurmsched's configuration: placement.pin, placement.retype = true",
        f"# by hand, a pending job of 2 GPUs on the first two: scontrol update JobId=ID Gres={pair}",
    ]
