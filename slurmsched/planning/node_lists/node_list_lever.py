"""The lever that writes node lists: it finds the best nodes for waiting jobs, writes them, and gives them back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from slurmsched.config import PlacementConfig, ScopeConfig
from slurmsched.model import (
    AllowStart,
    JobGpuRequest,
    NodeState,
    Ranking,
    Refusal,
    Rights,
    SetGpuRequest,
    SetNodeList,
    Snapshot,
    Step,
)
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.gpu_masks import lowest_bits, mask_members
from slurmsched.model.hints import parse_hints
from slurmsched.model.hostlists import expand_hostlist, fold_hostlist, same_hosts
from slurmsched.model.jobs import Jobs
from slurmsched.planning import job_scope as jobs_of
from slurmsched.planning.earliest_starts import own_starts
from slurmsched.planning.job_overrides import (
    GPU_TYPE,
    NODE_LIST_FIELDS,
    JobOverrides,
    by_job,
    left_alone,
    on_record,
    operation_of,
    own_lists,
    records_of,
    restore_proposal,
    restore_steps,
    settled_list,
    untouched,
)
from slurmsched.planning.node_lists.gpu_picks import (
    SelectedGpus,
    SelectionState,
    WalkCapacity,
    fabric_text,
    gang_refusal,
    gang_shares,
)
from slurmsched.planning.node_lists.gpu_type_choice import nodes_by_type, nodes_of_types, type_refusal
from slurmsched.planning.priorities.order import competing_jobs
from slurmsched.planning.proposals import Budget, Lever, Proposal
from slurmsched.protocols import Placement
from slurmsched.resources.eligibility import allowed_nodes
from slurmsched.resources.placeable_gpus import PlaceableGpus
from slurmsched.resources.reservation_limits import UnknownEligibility, reserved_from_s, unreserved_nodes
from slurmsched.resources.startable_jobs import startable
from slurmsched.resources.topology_limits import starts_on, topology_for_partitions, unknown_topology_rule

if TYPE_CHECKING:
    from slurmsched.planning.planner import Planner


@dataclass(frozen=True, slots=True, eq=False)
class NodeListWanted:
    """The jobs whose nodes are chosen.

    picked: (N,) bool, by what Slurm would pick there.
    types: by row, how many nodes of each GPU type the policy wants.
    waits: (N,) bool, who begins only once it has a place.
    """

    picked: Bools
    types: dict[int, dict[str, int]]
    waits: Bools


@dataclass(slots=True, eq=False)
class NodeListSearch:
    """The search for nodes. Waiting jobs in their order take what they would start with, so no two get the same GPUs.

    active: lists of ours that jobs have now, by row.
    chosen, why: the nodes of each job that gets some, and the reason.
    request: by GPU Type, of those chosen that get one.
    picked: those that got them by what they ask for.
    blocked_s: (N,) from when on no job is sent to each node [Unix s], see _blocked_s.
    boots: (N,) bool, nodes that have to boot first.
    """

    available: WalkCapacity
    active: dict[int, JobOverrides]
    chosen: dict[int, str] = field(default_factory=dict)
    why: dict[int, str] = field(default_factory=dict)
    request: dict[int, str] = field(default_factory=dict)
    picked: set[int] = field(default_factory=set)
    refused: list[Refusal] = field(default_factory=list)
    blocked_s: Floats = field(init=False)
    boots: Bools = field(init=False)
    gpu_requests: dict[tuple[int, float], JobGpuRequest] = field(init=False)

    def __post_init__(self) -> None:
        self.blocked_s, self.boots = _blocked_s(self.available.base), self.available.base.nodes.after_boot
        gpu_selection = self.available.base.gpu_selection or self.available.picks.gpu_selection
        self.gpu_requests = {
            (gpu_request.job_id, gpu_request.submit_s): gpu_request
            for gpu_request in reversed(gpu_selection.gpu_requests)
        }

    def go(self, asked: NodeListWanted) -> None:
        """Consider the waiting jobs, most urgent first. Jobs for a GPU type are also considered after the first that
        does not fit."""
        group, blocked = competing_jobs(self.available.base), set[int]()
        for row in self.available.rows.tolist():
            if row in asked.types and self._of_types(row, asked.types[row]):
                continue
            if asked.waits[row] and not asked.picked[row]:
                continue  # it begins no earlier than it says, and takes nothing now
            if int(group[row]) not in blocked and not self._served(row, bool(asked.picked[row])):
                blocked.add(int(group[row]))

    def _of_types(self, row: int, want: dict[str, int]) -> bool:
        """Take that many nodes of each of these types, if there is room. Which GPUs the job gets there is not known."""
        gpu_request, count = self._gpu_request(row), sum(want.values())
        if why := type_refusal(gpu_request, count):
            self._refuse(row, "pin-asks", why)
            return False
        snapshot = self.available.base
        if why := unknown_topology_rule(topology_for_partitions(snapshot, snapshot.jobs.partition[row]), count):
            self._refuse(row, "pin-gang", why)
            return False
        found = nodes_of_types(self.available.snapshot, row, want, self._own_list(row), self._unreserved(row))
        if not found or not starts_on(snapshot.topology, np.array(found)):
            return False
        share = int(snapshot.jobs.gpus[row]) // count
        for node in found:
            used = int(self.available.used.gpu_mask_used[node])
            shown = used.bit_count() == int(self.available.used.gpus_used[node])
            self.available.take(row, node, lowest_bits(~used, share) if shown else 0, share, count)
            self.available.picks.shut(node)
            if gpu_request is not None and gpu_request.whole:
                self.available.close(node)
        if count > 1:
            self.picked.add(row)  # what it asks for is looked at again before it gets a list
        self.chosen[row] = fold_hostlist(snapshot.nodes.name[node] for node in found)
        there = "these nodes" if count > 1 else "this node"
        self.why[row] = f"the policy wants it on {' and '.join(want)}, of which there is room on {there}"
        return True

    def _served(self, row: int, wanted: bool) -> bool:
        """Whether the job fits into the remaining capacity. If so, its share is taken."""
        try:
            allowed = allowed_nodes(self.available.base, row) & ~self.available.closed
        except UnknownEligibility as error:
            if wanted:
                self._refuse(row, "pin-form", str(error))
            return self._plain(row, np.ones(len(self.available.base.nodes), np.bool_))
        gpu_request = self._gpu_request(row) if wanted else None
        if gpu_request is not None and not gpu_request.bars:
            several = int(self.available.base.jobs.nodes[row]) > 1
            return self._gang(row, gpu_request, allowed) if several else self._best(row, gpu_request, allowed)
        if wanted:
            barred = f"it asks for {' and '.join(gpu_request.bars)}" if gpu_request else "what it asks for was not read"
            self._refuse(row, "pin-asks", f"{barred}: its request decides which GPUs it gets, or that is unknown")
        return self._plain(row, allowed)

    def _gpu_request(self, row: int) -> JobGpuRequest | None:
        gpu_request = self.gpu_requests.get(self.available.base.jobs.id_and_submit(row))
        return gpu_request and _by_own_request(gpu_request, self.active.get(row))

    def _own_list(self, row: int) -> str:
        """The node list that the job has by us, "" = none."""
        return str(self.active[row].nodes.sent) if row in self.active else ""

    def _unreserved(self, row: int) -> Bools:
        """Nodes that are up and that no reservation keeps from the job; none if that cannot be read. (N,) bool.

        A job is never pinned to a node that has to boot first: where it needs one, Slurm chooses it.
        """
        return unreserved_nodes(self.available.base, row, self.blocked_s)

    def _best(self, row: int, gpu_request: JobGpuRequest, allowed: Bools) -> bool:
        """Take the node with the best pick. If no pick is known, Slurm chooses the node."""
        gpus = int(self.available.base.jobs.gpus[row])
        good, best = self.available.picks.best_picks(allowed & self._unreserved(row), gpu_request, gpus)
        node = self._placed(row, good) if good.any() else -1
        if node < 0:
            return self._plain(row, allowed)
        pick = self.available.picks.pick(node, gpu_request, gpus)
        self.available.picks.take(node, pick)
        self.available.take(row, node, pick.mask, gpus)
        self.picked.add(row)
        self.chosen[row] = self.available.base.nodes.name[node]
        self.why[row] = _reason(pick, best)
        if pick.request:
            self.request[row] = pick.request
        return True

    def _gang(self, row: int, gpu_request: JobGpuRequest, allowed: Bools) -> bool:
        """Take the nodes of a gang that are nearest to each other. If they are not all free now, Slurm chooses."""
        if why := gang_refusal(self.available.base, row, gpu_request, allowed):
            self._refuse(row, "pin-gang", why)
            return self._plain(row, allowed)
        found = gang_shares(self.available, row, gpu_request, allowed & self._unreserved(row), self._own_list(row))
        if not found:
            return self._plain(row, allowed)
        self.picked.add(row)
        self.chosen[row] = fold_hostlist(self.available.base.nodes.name[node] for node in found)
        self.why[row] = fabric_text(self.available.base.topology, found)
        return True

    def _placed(self, row: int, nodes: Bools) -> int:
        """The node that the placement gives the job among these, -1 if it does not fit. A list of ours that is as good
        stays."""
        has = self._own_list(row)
        own = nodes & self.available.base.nodes.name.isin(expand_hostlist(has)) if has else nodes
        for among in (own, nodes) if has else (nodes,):
            if len(shares := self.available.shares(row, among)) == 1:
                return shares[0][0]
        return -1

    def _plain(self, row: int, allowed: Bools) -> bool:
        """A job whose nodes are Slurm's to choose: where the placement puts it stands for that, and nothing more is
        known of the GPUs there."""
        up = allowed & ~self.boots  # Slurm takes the others last
        shares = (self.available.shares(row, up) if self.boots.any() else []) or self.available.shares(row, allowed)
        for node, mask, gpus in shares:
            self.available.take(row, node, mask, gpus, len(shares))
            self.available.picks.shut(node)
        return bool(shares) or not self.available.base.jobs.gpus[row]

    def _refuse(self, row: int, rule: str, reason: str) -> None:
        self.refused.append(Refusal(int(self.available.base.jobs.job_id[row]), rule, reason))


def _rows(snapshot: Snapshot, ranking: Ranking, asked: NodeListWanted, candidates: int) -> Int64s:
    """Rows of that many waiting jobs to look at, most urgent first, and of as many that are to have a type; none after
    the last whose node is to be chosen. (K,)."""
    rows = ranking.order[startable(snapshot)[ranking.order]]
    typed = np.isin(rows, list(asked.types))
    looked = (np.arange(len(rows)) < candidates) | (typed & (np.cumsum(typed) <= candidates))
    ends = np.flatnonzero(looked & (typed | asked.picked[rows]))
    last = int(ends[-1]) + 1 if len(ends) else 0
    found: Int64s = rows[:last][looked[:last]]
    return found


def _blocked_s(snapshot: Snapshot) -> Floats:
    """As reserved_from_s; always, where a node is reserved now or has to boot, and everywhere, where a reservation's
    nodes cannot be read. (N,)."""
    nodes = snapshot.nodes
    try:
        from_s = reserved_from_s(snapshot)
    except UnknownEligibility:
        from_s = np.full(len(nodes), -np.inf)
    return np.where(nodes.is_state(NodeState.RESERVED) | nodes.after_boot, -np.inf, from_s)


def _by_own_request(gpu_request: JobGpuRequest, ours: JobOverrides | None) -> JobGpuRequest:
    """The request by the job's own request, which says what may be done with it."""
    gpu_request = replace(gpu_request, asks=str(ours.request.base)) if ours and ours.request.open else gpu_request
    if "," not in gpu_request.asks:
        return gpu_request
    return replace(gpu_request, bars=(*gpu_request.bars, "GPUs of several types"))


def _reason(pick: SelectedGpus, best_rank: int) -> str:
    gpus = ",".join(map(str, mask_members(pick.mask)))
    good = "the best set of all it may have" if pick.rank >= best_rank else "the best of Slurm's picks on its nodes"
    return f"Slurm gives it GPUs {gpus} there, {good}"


# The lever of node lists.

LINKED_HINTS = ("nvlink", "numa", "switch")  # of the values of topo=
_MOVED = "its nodes are no longer free, or other jobs start first"


@dataclass(frozen=True, slots=True)
class NodeListLever(Lever):
    """Writes node lists and GPU types. Those on record are also taken back after pinning is turned off."""

    first = True  # a look at its jobs is freshest then

    placement: Placement | None
    config: PlacementConfig
    scope: ScopeConfig

    @classmethod
    def of(cls, planner: Planner) -> NodeListLever:
        return cls(planner.placement, planner.placement_config, planner.scope)

    def as_submitted(self, snapshot: Snapshot) -> Snapshot:
        """Jobs that only wait for a node of their type are ranked too."""
        return soon(snapshot, self.config.wait_s) if self.config.types else snapshot

    def propose(self, snapshot: Snapshot, ranking: Ranking, budget: Budget) -> Proposal:
        if self.placement is None:
            return Proposal()
        free = budget.without(budget.changed_by("start", "size", "cpus", "memory", "share"), snapshot.jobs.job_id)
        ready = free & (snapshot.site.rights >= Rights.OPERATOR)
        return node_lists(snapshot, ranking, ready, self.placement, self.config, self.scope, budget.writes)

    @staticmethod
    def restore(snapshot: Snapshot) -> Proposal:
        return restore_proposal(snapshot, NODE_LIST_FIELDS, "undo: its own node list and request")

    settled = staticmethod(settled_list)


# Over 30 lines: a third is signature and docstring; each mask of rows is made of the one before.
def node_lists(
    snapshot: Snapshot, ranking: Ranking, managed: Bools, placement: Placement, config: PlacementConfig,
    scope: ScopeConfig, most: int = 500,
) -> Proposal:  # fmt: skip
    """Node lists and requests for the managed jobs that would start first, and those that have to be given back.

    A job that has a size or CPUs of ours on record, or for which an operation is under way, is not changed.

    - A job is pinned to nodes of the GPU types that the policy chose for it, if so configured and there is room.
    - Another job of one node is pinned if its GPUs are free now and Slurm's pick there is known. No node that it may
      have may give it a better pick. Of equals the placement chooses.
    - A gang is pinned if all of it is free now (NodeListSearch._gang).

    Jobs after the first that does not fit among those it competes with are not looked at. Slurm does not start them now
    either.
    managed: (N,) bool.
    most: writes of this cycle.
    """
    others, known = untouched(snapshot, but=NODE_LIST_FIELDS), by_job(snapshot.overrides, NODE_LIST_FIELDS)
    active, partly_changed, changed = on_record(snapshot, NODE_LIST_FIELDS)
    active, partly_changed = _without(active, others), _without(partly_changed, others)
    jobs, waits = own_lists(snapshot), _waiting(snapshot, config.wait_s)
    base = soon(replace(snapshot, jobs=jobs), config.wait_s)
    open_ = managed & ~others & ~left_alone(jobs, (*known, *changed, *partly_changed.values()))
    by_type = nodes_by_type(base, ranking.changes) if config.types else {}
    typed = open_ & np.isin(np.arange(len(jobs)), list(by_type))
    wanted = open_ & _wanting(jobs, config.pin) & ~typed
    verdict = np.where(wanted | typed, jobs_of.node_list_verdicts(jobs, scope), -1).astype(np.int8)
    refused = jobs_of.refusals(snapshot, verdict, jobs_of.NODE_LIST_RULES)
    picked = wanted & (verdict < 0) & (snapshot.gpu_selection is not None)
    sent = typed & (verdict < 0)
    asked = NodeListWanted(picked, {row: nodes for row, nodes in by_type.items() if sent[row]}, waits)
    rows, placeable = _rows(base, ranking, asked, config.candidates), None
    if snapshot.gpu_selection is not None and picked.any():
        placeable = PlaceableGpus.of(base)
        state = SelectionState.of(base, snapshot.gpu_selection, retype=config.retype, placeable=placeable)
    else:
        state = SelectionState.unknown(base)
    walk = NodeListSearch(WalkCapacity(base, placement, state, rows, placeable), active)
    walk.go(asked)
    return _written(snapshot, config, (active, partly_changed), changed, walk, (*refused, *walk.refused), most)


def _without(known: dict[int, JobOverrides], others: Bools) -> dict[int, JobOverrides]:
    return {row: ours for row, ours in known.items() if not others[row]}


def soon(snapshot: Snapshot, wait_s: float) -> Snapshot:
    """The snapshot in which jobs that were submitted to wait a moment for their place count as ready to start."""
    waits = _waiting(snapshot, wait_s)
    if not waits.any():
        return snapshot
    begin_s = np.where(waits, snapshot.now_s, snapshot.jobs.eligible_s)
    return replace(snapshot, jobs=snapshot.jobs.with_columns(eligible_s=begin_s))


def _waiting(snapshot: Snapshot, wait_s: float) -> Bools:
    """Jobs that may begin no more than wait_s after their submission, and not yet. A start of ours is no such request:
    the policy wants the job later. (N,) bool."""
    jobs = own_starts(snapshot).jobs
    return jobs.pending & (jobs.eligible_s > snapshot.now_s) & (jobs.eligible_s - jobs.submit_s <= wait_s)


def _wanting(jobs: Jobs, pin: str) -> Bools:
    """Jobs whose nodes are to be chosen: by hint or, if so configured, all of two or more GPUs. (N,) bool."""
    topo = jobs.comment.map(lambda comment: parse_hints(comment).topo, object)
    hinted = np.array([value in LINKED_HINTS for value in topo], np.bool_)
    if pin == "multi-gpu":
        hinted |= np.array([value is None for value in topo], np.bool_)
    return hinted & (jobs.gpus > 1) & (pin != "off")


def _written(
    snapshot: Snapshot, config: PlacementConfig, known: tuple[dict[int, JobOverrides], ...],
    changed: tuple[JobOverrides, ...], found: NodeListSearch, refused: tuple[Refusal, ...], most: int,
) -> Proposal:  # fmt: skip
    """What is new, moved or given back, most urgent first; then what else changes on record. known: what `on_record`
    tells of jobs that hold all that we gave them, and of those of which somebody else changed a part."""
    active, partly_changed = known
    changes: list[tuple[tuple[Step, ...], JobOverrides | None]] = [
        restore_steps(snapshot, row, ours, ours.note, abandoned=True) for row, ours in partly_changed.items()
    ]
    unanswered = {row for row, ours in active.items() if ours.unanswered}
    chosen = {row: name for row, name in found.chosen.items() if row not in unanswered}
    for row, ours in ((row, ours) for row, ours in active.items() if row not in unanswered):
        late = snapshot.now_s - ours.since_s > config.start_timeout_s
        if not late and row not in chosen and unknown_topology_rule(snapshot.topology, int(snapshot.jobs.nodes[row])):
            continue  # no rule refuses its list
        if late or row not in chosen:
            chosen.pop(row, None)
            note = f"it did not start within {config.start_timeout_s:g} s" if late else _MOVED
            changes.append(restore_steps(snapshot, row, ours, note, abandoned=late))
    waiting = _waiting(snapshot, config.wait_s)
    for row in chosen:
        changes.append(_placed_steps(snapshot, row, found, active.get(row), waits=bool(waiting[row])))
    fits = np.cumsum([len(steps) for steps, _ in changes]) <= most
    kept = [change for change, fit in zip(changes, fits, strict=True) if fit]
    later = tuple(steps[0].job_id for (steps, _), fit in zip(changes, fits, strict=True) if not fit)
    actions = tuple(step for steps, _ in kept for step in steps)
    overrides = records_of((*changed, *(record for _, record in kept if record)))
    return Proposal(actions, overrides, refused, later)


def _placed_steps(
    snapshot: Snapshot, row: int, found: NodeListSearch, before: JobOverrides | None, *, waits: bool
) -> tuple[tuple[Step, ...], JobOverrides | None]:
    """What gives the job its node and its request, and its record; less where it has them already."""
    key, operation, name, why = (
        snapshot.jobs.id_and_submit(row),
        operation_of(snapshot, row, GPU_TYPE),
        found.chosen[row],
        found.why[row],
    )
    nodes, gpus = snapshot.jobs.nodes_asked[row], snapshot.jobs.gpu_request[row]
    blank = JobOverrides.blank(NODE_LIST_FIELDS, *key, snapshot.now_s)
    before = before or blank.with_nodes(base=nodes, sent=nodes)
    before = before if before.request.open else before.with_request(base=gpus, sent=gpus)
    own_list, own_request = str(before.nodes.base), str(before.request.base)
    request = found.request.get(row, own_request)
    steps: list[Step] = []
    if not (before.nodes.open and same_hosts(nodes, name)):
        steps.append(SetNodeList(*key, why, operation, name, nodes, own_list, row in found.picked))
    if request != gpus:
        steps.append(SetGpuRequest(*key, why, operation, request, gpus, own_request))
    record = _record(before, name, request, snapshot.now_s) if steps else None
    if waits:
        steps.append(AllowStart(*key, "its place is chosen, it need not wait longer", operation, snapshot.now_s))
    return tuple(steps), record


def _record(before: JobOverrides, name: str, request: str, now_s: float) -> JobOverrides:
    """The overrides of a job that is to have this node and this request. Requests of ours stay on it until the job is
    seen with its own."""
    nodes, asked = before.nodes, before.request
    listed = nodes.given(name, now_s) if name != nodes.sent else nodes
    if request != asked.base:
        return JobOverrides((listed, asked.given(request, now_s) if request != asked.sent else asked))
    own = replace(asked, sent=request) if asked.values else replace(asked, base="", sent="")
    return JobOverrides((listed, own))
