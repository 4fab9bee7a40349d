"""The GPUs that Slurm would give a job on each node, and the best set that is free there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model import GpuSelection, JobGpuRequest, NodeState, Ranking, SiteTopology, Snapshot, frozen
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.gpu_masks import bit_counts
from slurmsched.model.hostlists import expand_hostlist
from slurmsched.placements.fabric_cells import cells_of
from slurmsched.placements.linked import ClassTables
from slurmsched.placements.stepwise_placement import GangPlacement, InUse, StepwisePlacement
from slurmsched.protocols import Placement
from slurmsched.resources.allocated import holding
from slurmsched.resources.by_type import FreeByType
from slurmsched.resources.free import FreeResources, JobRequirements
from slurmsched.resources.gpu_sets import domains, members_of
from slurmsched.resources.placeable_gpus import MOST_GPUS, PlaceableGpus
from slurmsched.resources.topology_limits import (
    nodes_for_one_job,
    starts_on,
    topology_for_partitions,
    unknown_topology_rule,
)
from slurmsched.topology.gres_nodes import TypedNode, safest_request
from slurmsched.topology.slurm_selection import (
    UNKNOWN_SELECTION,
    GpuOption,
    NodeGpuRequest,
    SlurmNode,
    SlurmVersion,
    cores_for,
    mask_to_bools,
    select_gpus,
)

NO_RANK = -1
_NOT_LOOKED_AT = -2


@dataclass(frozen=True, slots=True)
class SelectedGpus:
    """What Slurm would give of one node.

    mask: GPUs that Slurm would give, 0 = none, or not known.
    rank: of that set, higher is better, by its links, then by fewest NUMA nodes. It can be compared across classes.
    best_rank: of the best free set there, -1 = too few are free.
    cores: taken of each socket.
    request: by Type, for which that holds; "" = the job's own.
    """

    mask: int = 0
    rank: int = NO_RANK
    best_rank: int = NO_RANK
    cores: tuple[int, ...] = ()
    request: str = ""


class NodeSelectionState(NamedTuple):
    """The state of one node on which Slurm's pick depends.

    kind: row of gpu_selection.kinds, -1 = not known. The others: see SelectionState.
    """

    kind: int
    node_class: int
    free: int
    cores: tuple[int, ...]


@dataclass(slots=True, eq=False)
class _KnownPicks:
    """Picks that were worked out, by row of SelectionState.states.

    rank: of the states that there were then, _NOT_LOOKED_AT where the pick is not known.
    """

    picks: dict[int, SelectedGpus] = field(default_factory=dict)
    rank: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))

    def note(self, code: int, pick: SelectedGpus) -> None:
        self.picks[code] = pick
        self.ranks(code + 1)[code] = pick.rank

    def ranks(self, states: int) -> Int64s:
        """The ranks of at least that many states."""
        if (more := states - len(self.rank)) > 0:
            self.rank = np.append(self.rank, np.full(more, _NOT_LOOKED_AT))
        return self.rank


@dataclass(slots=True, eq=False)
class SelectionState:
    """Free GPUs and cores while a cycle assigns them, and what Slurm picks of them.

    tables: sets of the GPUs of each class.
    rank: of all sets of all classes, where tables.set_at says.
    free: (N,) int64 masks of GPUs that no job holds; 0 on nodes whose wiring or free cores are not known.
    node_class: (N,) row of the site's classes that has a table of sets, -1 = none.
    cores: free cores of each socket, by node.
    retype: whether requests may be rewritten; else nothing is known of nodes of several Types.
    alike: (N,) row of `states` of each node. Nodes that are alike in all that counts are worked out once.
    states: the different states of nodes.
    """

    gpu_selection: GpuSelection
    tables: ClassTables
    rank: Int64s
    free: Int64s
    node_class: Int64s
    cores: list[tuple[int, ...]]
    retype: bool = False
    alike: Int64s = field(init=False)
    states: list[NodeSelectionState] = field(init=False)
    _code: dict[NodeSelectionState, int] = field(init=False)
    _best: dict[int, Int64s] = field(default_factory=dict)
    _known: dict[tuple[JobGpuRequest, int], _KnownPicks] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = (self.gpu_selection.node_kind.tolist(), self.node_class.tolist(), self.free.tolist(), self.cores)
        each = list(zip(*columns, strict=True))
        self.states = [NodeSelectionState(*state) for state in dict.fromkeys(each)]
        self._code = {state: code for code, state in enumerate(self.states)}
        self.alike = np.fromiter(map(self._code.__getitem__, each), np.int64, len(each))  # type: ignore[arg-type]

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        gpu_selection: GpuSelection,
        *,
        retype: bool = False,
        placeable: PlaceableGpus | None = None,
    ) -> SelectionState:
        """Of a snapshot whose gpu_selection is known. placeable: PlaceableGpus.of(snapshot), if it is at hand."""
        placeable = PlaceableGpus.of(snapshot) if placeable is None else placeable
        tables = ClassTables.of(snapshot.topology, "smallest")
        has = np.append(tables.tabled, False)
        node_class = np.where(has[placeable.node_class], placeable.node_class, -1)
        cores_known = np.array([bool(cores) for cores in gpu_selection.free_cores], np.bool_)
        whole = (np.int64(1) << snapshot.nodes.gpus.astype(np.int64)) - 1
        free = np.where(cores_known & (node_class >= 0), whole & ~snapshot.nodes.gpu_mask_used, 0)
        return cls(gpu_selection, tables, _ranks(tables), free, node_class, list(gpu_selection.free_cores), retype)

    @classmethod
    def unknown(cls, snapshot: Snapshot) -> SelectionState:
        """The state if it is not known how Slurm picks."""
        nodes, tables = len(snapshot.nodes), ClassTables.of(SiteTopology(), "smallest")
        none, cores = frozen(np.full(nodes, -1), np.int64), ((),) * nodes
        return cls(GpuSelection((), none, cores, (0, 0)), tables, none, np.zeros(nodes, np.int64), none, list(cores))

    def pick(self, node: int, gpu_request: JobGpuRequest, gpus: int) -> SelectedGpus:
        """The GPUs that Slurm would give on this node now."""
        return self._pick_of(int(self.alike[node]), self._picks_of(gpu_request, gpus), gpu_request, gpus)

    def best_picks(self, nodes: Bools, gpu_request: JobGpuRequest, gpus: int) -> tuple[Bools, int]:
        """Of these nodes those where Slurm's pick is of the highest rank; and the rank of the best set that is free on
        any of them, -1 = too few are free on each. (N,) bool."""
        codes = np.flatnonzero(np.bincount(self.alike, nodes, len(self.states)))
        best, known = self._best_ranks(gpus)[codes], self._picks_of(gpu_request, gpus)
        turn = np.argsort(-best, kind="stable")
        codes, best = codes[turn], best[turn]
        rank = known.ranks(len(self.states))[codes]
        top = rank.max(initial=NO_RANK)
        for at in np.flatnonzero(rank == _NOT_LOOKED_AT).tolist():
            if best[at] == NO_RANK or _by_links(best[at]) < _by_links(top):
                break  # no pick is linked better than the best set that is free there
            rank[at] = self._pick_of(int(codes[at]), known, gpu_request, gpus).rank
            top = max(top, rank[at])
        good = np.zeros(len(self.states), np.bool_)
        good[codes[rank == top]] = top > NO_RANK
        return nodes & good[self.alike], int(best.max(initial=NO_RANK))

    def best_rank(self, code: int, gpus: int) -> int:
        """Rank of the best free set of so many GPUs on nodes of this state, -1 if fewer are free or it is not known."""
        return int(self._best_ranks(gpus)[code])

    def _best_ranks(self, gpus: int) -> Int64s:
        """As best_rank, of all states. (S,)."""
        known = self._best.get(gpus, np.zeros(0, np.int64))
        if len(known) < len(self.states):
            made = [self._rank_of(state, gpus) for state in self.states[len(known) :]]
            known = self._best[gpus] = np.append(known, np.array(made, np.int64))
        return known

    def _rank_of(self, state: NodeSelectionState, gpus: int) -> int:
        kind, node_class, free, _ = state
        if min(kind, node_class) < 0 or free.bit_count() < gpus:
            return NO_RANK
        return int(self.rank[self.tables.set_at[node_class] + self.tables.take(node_class, free, gpus)])

    def _picks_of(self, gpu_request: JobGpuRequest, gpus: int) -> _KnownPicks:
        """What is known of a job of such a request."""
        return self._known.setdefault((_same_request(gpu_request), gpus), _KnownPicks())

    def _pick_of(self, code: int, known: _KnownPicks, gpu_request: JobGpuRequest, gpus: int) -> SelectedGpus:
        if code not in known.picks:
            state = self.states[code]
            fits = state.kind >= 0 and state.free.bit_count() >= gpus
            known.note(code, self._pick(code, state, gpu_request, gpus) if fits else SelectedGpus())
        return known.picks[code]

    def take(self, node: int, pick: SelectedGpus) -> None:
        """A job takes this pick."""
        self.free[node] &= ~pick.mask
        self.cores[node] = tuple(max(0, n - k) for n, k in zip(self.cores[node], pick.cores, strict=True))
        self._update_state(node)

    def shut(self, node: int) -> None:
        """From now on it is not known what is free on this node."""
        self.free[node] = 0
        self._update_state(node)

    def _update_state(self, node: int) -> None:
        kind, node_class = int(self.gpu_selection.node_kind[node]), int(self.node_class[node])
        state = NodeSelectionState(kind, node_class, int(self.free[node]), self.cores[node])
        if state not in self._code:
            self._code[state] = len(self.states)
            self.states.append(state)
        self.alike[node] = self._code[state]

    def _pick(self, code: int, state: NodeSelectionState, gpu_request: JobGpuRequest, gpus: int) -> SelectedGpus:
        shape: SlurmNode | TypedNode = self.gpu_selection.kinds[state.kind]
        if isinstance(shape, TypedNode):
            return self._surest(code, state, shape, gpu_request, gpus)
        free, cores, best = state.free, state.cores, self.best_rank(code, gpus)
        given = {_picked(shape, request, free, cores, self.gpu_selection.version) for request in _requests(gpu_request)}
        mask = given.pop() if len(given) == 1 else UNKNOWN_SELECTION
        if mask <= 0 or mask.bit_count() != gpus:
            return SelectedGpus(best_rank=best)
        at = self.tables.set_at[state.node_class]
        return SelectedGpus(
            mask, int(self.rank[at + mask]), best, _spent(shape, _requests(gpu_request)[0], free, cores)
        )

    def _surest(
        self, code: int, state: NodeSelectionState, shape: TypedNode, gpu_request: JobGpuRequest, gpus: int
    ) -> SelectedGpus:
        """What the job gets by the best request by Type. Its cores are taken wherever Slurm finds them."""
        best, kind, free = self.best_rank(code, gpus), state.node_class, state.free
        if not (
            self.retype
            and _may_retype(gpu_request, gpus)
            and kind >= 0
            and shape.gpus == self.tables.classes[kind].gpus
        ):
            return SelectedGpus(best_rank=best)
        at = int(self.tables.set_at[kind])
        rank = self.rank[at : at + (1 << shape.gpus)]
        sure = safest_request(shape.types, free, gpus, rank, self.tables.take(kind, free, gpus))
        return SelectedGpus(sure.mask, sure.rank, best, (0,), sure.request) if sure else SelectedGpus(best_rank=best)


@lru_cache(maxsize=16)
def _ranks(tables: ClassTables) -> Int64s:
    """Ranks of the tables' sets, of equal ones that on fewer NUMA nodes first. Same shape."""
    classes = [one for one, has in zip(tables.classes, tables.tabled, strict=True) if has]
    spans = np.concatenate([domains(one.numa, members_of(one.gpus)) for one in classes] or [np.zeros(0, np.int64)])
    found: Int64s = tables.rank * (MOST_GPUS + 1) + MOST_GPUS - spans
    return found


@lru_cache(maxsize=1 << 12)
def _same_request(gpu_request: JobGpuRequest) -> JobGpuRequest:
    """The request without whose it is."""
    return replace(gpu_request, job_id=0, submit_s=0.0)


def _by_links(rank: int) -> int:
    """What of a rank is by links alone."""
    return rank // (MOST_GPUS + 1)


def _may_retype(gpu_request: JobGpuRequest, gpus: int) -> bool:
    """Whether all that a job asks for by node is that many GPUs of any Type, near its cores or not."""
    return (
        gpu_request.asks == f"gpu:{gpus}"
        and gpu_request.form == GpuOption.PER_NODE
        and gpu_request.alone
        and not gpu_request.bound
    )


def _requests(gpu_request: JobGpuRequest) -> list[NodeGpuRequest]:
    """The requests that the job may have made: Slurm does not tell one task from none given."""
    tasks: Iterable[int] = (gpu_request.tasks,) if gpu_request.tasks > 1 else (0, 1)
    form = GpuOption(gpu_request.form)
    return [
        NodeGpuRequest(form, gpu_request.count, n, gpu_request.cpus_per_task, gpu_request.sockets, gpu_request.bound)
        for n in tasks
    ]


@lru_cache(maxsize=1 << 16)  # they are the same from cycle to cycle
def _picked(node: SlurmNode, request: NodeGpuRequest, free: int, cores: tuple[int, ...], version: SlurmVersion) -> int:
    try:
        return select_gpus(node, request, free, cores, version)
    except ConfigError:
        return UNKNOWN_SELECTION


@lru_cache(maxsize=1 << 16)
def _spent(node: SlurmNode, request: NodeGpuRequest, free: int, cores: tuple[int, ...]) -> tuple[int, ...]:
    """Cores of each socket that such a job takes."""
    taken = cores_for(node, request, mask_to_bools(free, node.gpus), cores)
    return tuple(map(int, taken)) if taken is not None else (0,) * len(cores)


# The remaining capacity of the cluster while waiting jobs take their shares, one after another.

Share = tuple[int, int, int]  # node row, mask of its GPUs, number of GPUs; the mask is 0 where Slurm shows counts only

_DRAIN = int(NodeState.DRAIN)


@dataclass(slots=True, eq=False)
class WalkCapacity:
    """What nodes have for the jobs of one walk, less what these jobs take.

    base: as the cycle found it.
    placement: puts jobs on nodes.
    picks: what Slurm would pick on them.
    rows: (K,) of the jobs that are looked at.
    placeable: PlaceableGpus.of(base), if it is at hand.
    closed: (N,) bool, nodes to which nobody else comes.
    used: what is in use by now.
    """

    base: Snapshot
    placement: Placement
    picks: SelectionState
    rows: Int64s
    placeable: PlaceableGpus | None = None
    closed: Bools = field(init=False)
    used: InUse = field(init=False)
    _now: Snapshot | None = None
    _steps: StepwisePlacement | None = None
    _types: FreeByType | None = None

    def __post_init__(self) -> None:
        self.closed, self.used = np.zeros(len(self.base.nodes), np.bool_), InUse.of(self.base)

    @property
    def snapshot(self) -> Snapshot:
        """The base in which what jobs took is in use, and closed nodes are drained."""
        if self._now is None:
            nodes, used = self.base.nodes, self.used
            state = np.where(self.closed, _DRAIN, nodes.state)
            columns = {spec.name: getattr(used, spec.name).copy() for spec in fields(used)}
            self._now = replace(self.base, nodes=nodes.with_columns(state=state, **columns))
        return self._now

    def shares(self, row: int, nodes: Bools) -> list[Share]:
        """What the placement gives the job on these nodes; none if it does not fit."""
        if self._steps is None:
            if not isinstance(self.placement, GangPlacement):
                return self._shares_of_place(row, nodes)
            placeable, self.placeable = self.placeable, None  # it holds once
            self._steps = StepwisePlacement.of(self.snapshot, self.placement, self.rows, placeable)
        gang = self._steps.place(row, nodes & ~self.closed)
        if gang is None:
            return []
        masks, blind = gang[1], self._steps.placeable.blind[gang[0]]
        return list(zip(gang[0].tolist(), np.where(blind, 0, masks).tolist(), bit_counts(masks).tolist(), strict=True))

    def _shares_of_place(self, row: int, nodes: Bools) -> list[Share]:
        table = self.snapshot.nodes
        # The state is DRAIN and nothing else: a node that reboots takes jobs while it drains.
        closed = np.where(nodes, table.state, _DRAIN)
        view = replace(self.snapshot, nodes=table.with_columns(state=closed))
        found = self.placement.place(view, Ranking(np.append(np.flatnonzero(holding(view.jobs)), row)))
        at = np.flatnonzero(found.rows == row)
        if not len(at):
            return []
        entries = slice(int(found.first[at[0]]), int(found.first[at[0]] + found.count[at[0]]))
        gpus = found.gpus[entries]
        masks = found.gpu_mask[entries] if len(found.gpu_mask) else np.zeros_like(gpus)
        return list(zip(found.node[entries].tolist(), masks.tolist(), gpus.tolist(), strict=True))

    def free(self) -> FreeResources:
        """What each node has free by now."""
        nodes, used = self.base.nodes, self.used
        if self._types is None or self._types.several.any():
            self._types = FreeByType.of(self.snapshot)
        gpus, cpus = nodes.gpus.astype(np.int64) - used.gpus_used, nodes.cpus.astype(np.int64) - used.cpus_used
        return FreeResources(gpus, cpus, nodes.memory_mib - used.memory_used_mib, self._types)

    def take(self, row: int, node: int, taken: int, gpus: int, of: int = 1) -> None:
        """The job's share, one of that many, is gone. taken: mask, 0 = not known."""
        jobs, used = self.base.jobs, self.used
        used.gpu_mask_used[node] |= taken
        used.gpus_used[node] += gpus
        used.cpus_used[node] += -(-int(jobs.cpus[row]) // of)
        used.memory_used_mib[node] += float(jobs.memory_mib[row]) / of
        if self._steps is not None and not self._steps.follow(node, taken, gpus, used):
            self._steps = None
        self._now = None

    def close(self, node: int) -> None:
        """No other job gets this node."""
        self.used.cpus_used[node] = self.base.nodes.cpus[node]
        self.used.memory_used_mib[node] = self.base.nodes.memory_mib[node]
        self.closed[node], self._now = True, None
        self.picks.shut(node)


# Nodes of a waiting gang.

_SEGMENTS_SHOWN = (25, 5)  # Slurm's release from which on it tells the segment of a pending job


def gang_refusal(snapshot: Snapshot, row: int, gpu_request: JobGpuRequest, allowed: Bools) -> str:
    """Why no nodes are chosen for a gang, whatever is free; "" = they can be. allowed: (N,) nodes that it may have."""
    jobs, cell = snapshot.jobs, snapshot.topology.cell
    nodes, gpus = int(jobs.nodes[row]), int(jobs.gpus[row])
    whole = bool((snapshot.nodes.gpus[allowed] * nodes == gpus).any())
    if gpu_request.nodes != nodes or gpus % nodes or not (gpu_request.even or whole):
        return "how many GPUs Slurm gives it on each of its nodes is not known"
    if gpu_request.tasks % nodes:
        return "how many of its tasks Slurm starts on each of its nodes is not known"
    if not allowed.any():
        return ""
    if len(cell) != len(allowed) or not (cell[allowed] >= 0).any():
        return "nothing is known of the switches or blocks of its nodes"
    if why := unknown_topology_rule(topology_for_partitions(snapshot, jobs.partition[row]), nodes):
        return why
    shown = snapshot.gpu_selection is not None and snapshot.gpu_selection.version >= _SEGMENTS_SHOWN
    return "" if shown or snapshot.topology.slurm_fabric.form != "block" else "this Slurm does not show --segment"


def nodes_with_room(available: WalkCapacity, row: int, gpu_request: JobGpuRequest, allowed: Bools) -> Bools:
    """Of the nodes that a gang may have, those with a share of it free now. (N,) bool.

    A share is as many GPUs, CPUs and as much memory on each. Where GPUs are not asked for by node, only nodes of which
    it gets every GPU; where it shares them with nobody, only empty ones.
    """
    snapshot, used, need = available.base, available.used, JobRequirements.of(available.base, row)
    room = allowed & available.free().seen_by(need).fits(need)
    if not gpu_request.even:
        room &= snapshot.nodes.gpus == int(snapshot.jobs.gpus[row]) // gpu_request.nodes
    if gpu_request.whole:
        room &= (used.gpus_used == 0) & (used.cpus_used == 0) & (used.memory_used_mib == 0)
    return room


def gang_shares(available: WalkCapacity, row: int, gpu_request: JobGpuRequest, allowed: Bools, has: str) -> list[int]:
    """The nodes of a gang that lie together best, its shares of them taken; none where they cannot all be had now.

    allowed: (N,) nodes that it may have. has: a node list of ours, which stays where no other is nearer; "" = none.
    """
    room = nodes_with_room(available, row, gpu_request, allowed)
    share, each = int(available.base.jobs.gpus[row]) // gpu_request.nodes, request_per_node(gpu_request)
    good = available.picks.best_picks(room, each, share)[0] if each else np.zeros_like(room)
    found = _nearest(available, row, gpu_request, room, good, has)
    for node, mask, gpus in found:
        pick = available.picks.pick(node, each, share) if each else SelectedGpus()
        available.picks.take(node, pick) if pick.mask else available.picks.shut(node)
        available.take(row, node, pick.mask or mask, gpus, len(found))
        if gpu_request.whole:
            available.close(node)
    return [node for node, _, _ in found]


def _nearest(
    available: WalkCapacity, row: int, gpu_request: JobGpuRequest, room: Bools, good: Bools, has: str
) -> list[Share]:
    """Where the placement puts the gang: on the nodes of a list of ours, or where Slurm's picks are best, if they lie
    together as well as any. room: (N,) nodes with a share of it. good: (N,) those of them with the best picks."""
    topology, names = available.base.topology, available.base.nodes.name
    best = _whole(available, row, gpu_request, room) or _whole(
        available, row, gpu_request, nodes_for_one_job(topology, room, gpu_request.nodes)
    )
    if not best or (not has and (good == room).all()):
        return best
    own = names.isin(expand_hostlist(has)) if has else np.zeros_like(room)
    for among in (own & room, good):
        found = _whole(available, row, gpu_request, among)
        if found and fabric_height(topology, [node for node, _, _ in found]) <= fabric_height(
            topology, [n for n, _, _ in best]
        ):
            return found
    return best


def _whole(available: WalkCapacity, row: int, gpu_request: JobGpuRequest, among: Bools) -> list[Share]:
    """What the placement gives the gang of these nodes: an equal share of each, on nodes where Slurm would start it;
    else nothing."""
    if int(among.sum()) < gpu_request.nodes:
        return []
    found, share = available.shares(row, among), int(available.base.jobs.gpus[row]) // gpu_request.nodes
    even = len(found) == gpu_request.nodes and all(gpus == share for _, _, gpus in found)
    return found if even and starts_on(available.base.topology, np.array([node for node, _, _ in found])) else []


def request_per_node(gpu_request: JobGpuRequest) -> JobGpuRequest | None:
    """What the gang asks for on each of its nodes, None where Slurm's pick by it is not known. Its request is never
    rewritten: alone is False."""
    tasks, rest = divmod(gpu_request.tasks, gpu_request.nodes)
    if rest or gpu_request.form != GpuOption.PER_NODE or gpu_request.whole:
        return None
    return replace(gpu_request, tasks=tasks, nodes=1, alone=False)


def fabric_height(topology: SiteTopology, nodes: Sequence[int]) -> tuple[int, int]:
    """Level of the lowest cell that holds all these nodes, and how many of the lowest cells they are in; lower is
    nearer."""
    cells = cells_of(topology, len(topology.cell))
    lowest = cells.lowest[list(nodes)].tolist()
    spans = len({cell for cell in lowest if cell >= 0}) + sum(cell < 0 for cell in lowest)
    return int(cells.level[cells.smallest(np.array(nodes))]), spans


def fabric_text(topology: SiteTopology, nodes: Sequence[int]) -> str:
    """Where the nodes lie on the fabric."""
    cells = cells_of(topology, len(topology.cell))
    row, spans = int(cells.row[cells.smallest(np.array(nodes))]), fabric_height(topology, nodes)[1]
    cell = f"in {topology.fabric.cell[row]}" if row >= 0 else "in no one cell of the fabric"
    return f"its {len(nodes)} nodes are free together {cell}, over {spans} of the lowest cells"
