"""How often the GPUs that Slurm picks are the best ones: over sets of free GPUs of a node and all job sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slurmsched.kernels.slurm_pick import ANY
from slurmsched.kernels.slurm_search import picked
from slurmsched.model.columns import Int32s, Int64s
from slurmsched.placements.set_ranks import SetRanks
from slurmsched.topology.picker import DOUBLE_SINCE, REVERSED_LINKS, UNKNOWN, Version, bools, pick
from slurmsched.topology.slurm_cores import cores_for
from slurmsched.topology.slurm_node import Form, GpuRequest, SlurmNode

CHECKED = (Form.PER_NODE, Form.PER_JOB)  # whose every state the kernel scores
SHAPED = (Form.PER_TASK, Form.PER_SOCKET)  # the user fixes what goes where; asked of the picker state by state
EXAMPLES = 3
EVERY = 9  # GPUs of a node up to which every set of free ones is looked at
DRAWN = 1_000  # sets of more GPUs, each as likely as any other; the same ones with the same NumPy


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """Everything that can be free (of more than nine GPUs, what `free_sets` draws), and every size of at least two
    that fits.

    free: (T,) int64 masks. need: (T,) int64 GPUs. cores: (T, S) int32, what the job gets of each socket.
    best: (T,) int64, the highest rank among sets of so many free GPUs.
    """

    free: Int64s
    need: Int64s
    cores: Int32s
    best: Int64s

    def __len__(self) -> int:
        return len(self.free)


@dataclass(frozen=True, slots=True)
class Miss:
    """A state in which Slurm's pick is not the best. Masks; lost: share of the ring's smallest link, or of the sum."""

    free: int
    picked: int
    best: int
    lost: float


@dataclass(frozen=True, slots=True)
class Checked:
    """One form of request. best_share: of the states. lost_share: mean bandwidth lost over all states, 0 to 1.

    unknown: further states, in which Slurm's choice is not known, or a link between free GPUs.
    drawn: of so many sets of free GPUs that were drawn,
    0 = of every set.
    """

    form: Form
    states: int
    best_states: int
    lost_share: float
    worst: tuple[Miss, ...]
    unknown: int = 0
    drawn: int = 0

    @property
    def best_share(self) -> float:
        return self.best_states / self.states if self.states else 0.0


def free_sets(gpus: int) -> Sequence[int]:
    """Masks of the sets of free GPUs to look at, ascending."""
    if gpus <= EVERY:
        return range(1 << gpus)
    found: list[int] = np.sort(np.random.default_rng(1).choice(1 << gpus, DRAWN, replace=False)).tolist()
    return found


def states_of(node: SlurmNode, ranks: SetRanks, form: Form, cores_per_gpu: int) -> States:
    """The states, of one-task jobs of `cores_per_gpu` CPUs a GPU, where each GPU that is held holds as many cores."""
    rows: list[tuple[int, int, Int32s, int]] = []
    known: dict[tuple[object, ...], Int32s | None] = {}
    for free in free_sets(node.gpus):
        unheld, left = bools(free, node.gpus), _free_cores(node, free, cores_per_gpu)
        counts = tuple(int((unheld & (node.socket == s)).sum()) for s in range(ANY, node.sockets))
        for need in range(2, free.bit_count() + 1):
            key = (counts, tuple(left), need)
            if key not in known:
                request = GpuRequest(form, need, cpus_per_task=max(1, need * cores_per_gpu * node.cpus_per_core))
                known[key] = cores_for(node, request, unheld, left)
            cores = known[key]
            if cores is not None:
                rows.append((free, need, cores, int(ranks.rank[ranks.best[free, need]])))
    free_, need_, cores_, best_ = zip(*rows, strict=True)
    return States(np.array(free_), np.array(need_), np.array(cores_, np.int32), np.array(best_))


def _free_cores(node: SlurmNode, free: int, cores_per_gpu: int) -> list[int]:
    """Free cores of each socket when every held GPU holds as many near it (of the emptiest socket if near all)."""
    left = [node.cores_per_socket] * node.sockets
    for g in range(node.gpus):
        if not free >> g & 1:
            s = int(node.socket[g])
            s = s if s >= 0 else max(range(node.sockets), key=left.__getitem__)
            left[s] = max(0, left[s] - cores_per_gpu)
    return left


def picks_in(node: SlurmNode, states: States, form: Form, version: Version, order: Int32s | None = None) -> Int64s:
    """(T,) int64: the mask of GPUs picked in each state. order: the GPU at each index, None = as they are numbered."""
    order = np.arange(node.gpus, dtype=np.int32) if order is None else order
    old, per_job = version < REVERSED_LINKS, form is Form.PER_JOB
    found: Int64s = picked(
        states.free, states.need, states.cores, node.socket, node.links, node.linked, order, per_job, old,
        version >= DOUBLE_SINCE,
    )  # fmt: skip
    return found


def check(node: SlurmNode, ranks: SetRanks, form: Form, version: Version, states: States,
          order: Int32s | None = None) -> Checked:  # fmt: skip
    """How good Slurm's picks are in these states."""
    given = picks_in(node, states, form, version, order)
    return _judged(ranks, form, states.free.tolist(), given.tolist())


def check_shaped(node: SlurmNode, ranks: SetRanks, form: Form, version: Version, cores_per_gpu: int,
                 order: Int32s | None = None) -> Checked:  # fmt: skip
    """How good the picks are for --gpus-per-task=1 with 2, 3, ... tasks, or for --gpus-per-socket on 1, 2, ... sockets.

    Held against the best free set of as many GPUs, whatever the form. States as those of `states_of`.
    """
    order = np.arange(node.gpus, dtype=np.int32) if order is None else order
    lined = replace(node, socket=node.socket[order], links=node.links[np.ix_(order, order)])
    free, given, unknown = list[int](), list[int](), 0
    for unheld in free_sets(node.gpus):
        cores = _free_cores(node, unheld, cores_per_gpu)
        by_line = sum(1 << i for i, g in enumerate(order.tolist()) if unheld >> g & 1)
        for request in _shapes(form, unheld.bit_count(), node, cores_per_gpu):
            mask = pick(lined, request, by_line, cores, version)
            unknown += mask == UNKNOWN
            if mask > 0:
                free.append(unheld)
                given.append(sum(1 << int(g) for i, g in enumerate(order) if mask >> i & 1))
    found = _judged(ranks, form, free, given)
    return replace(found, unknown=found.unknown + unknown)


def _shapes(form: Form, most: int, node: SlurmNode, cores_per_gpu: int) -> Iterator[GpuRequest]:
    """Requests of that form for at least two and at most so many GPUs."""
    cpus = max(1, cores_per_gpu * node.cpus_per_core)
    if form is Form.PER_TASK:
        yield from (GpuRequest(form, 1, tasks, cpus) for tasks in range(2, most + 1))
        return
    for sockets in range(1, node.sockets + 1):
        for count in range(1, most // sockets + 1):
            if count * sockets > 1:
                yield GpuRequest(form, count, cpus_per_task=cpus * count, sockets=sockets)


def _judged(ranks: SetRanks, form: Form, free: Sequence[int], given: Sequence[int]) -> Checked:
    """Picks, given out of these free GPUs, against the best sets."""
    pairs = [(f, g) for f, g in zip(free, given, strict=True) if ranks.known[f]]
    misses = [_miss(ranks, f, g) for f, g in pairs if ranks.rank[g] != ranks.rank[ranks.best[f, g.bit_count()]]]
    worst = sorted(misses, key=lambda miss: (-miss.lost, miss.free.bit_count(), miss.free, miss.picked))
    lost = sum(miss.lost for miss in misses) / len(pairs) if pairs else 0.0
    drawn = DRAWN if ranks.best.shape[1] - 1 > EVERY else 0
    return Checked(
        form, len(pairs), len(pairs) - len(misses), lost, tuple(worst[:EXAMPLES]), len(free) - len(pairs), drawn
    )


def _miss(ranks: SetRanks, free: int, given: int) -> Miss:
    best = int(ranks.best[free, given.bit_count()])
    ring, total = ranks.ring_gb_per_s, ranks.total_gb_per_s
    speed = ring if ring[given] < ring[best] else total
    return Miss(free, given, best, float(1 - speed[given] / speed[best]) if speed[best] else 0.0)
