"""Jobs that are to run on the GPUs of others: hidden from a placement, and set beside their hosts when it is done."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.kernels.job_scan import count_in_order, room_needed, who_waits
from slurmsched.model import Allocations, Assignments, JobChanges, Jobs, JobState, Labels, Ranking, Snapshot
from slurmsched.model.columns import Bools, Int64s, made_read_only
from slurmsched.model.overrides import types_of
from slurmsched.model.states import HOLDS_NODES
from slurmsched.protocols import (
    BackfillingPlacement,
    ChangingPolicy,
    Placement,
    Policy,
    ReservingPlacement,
    is_preemptive,
)
from slurmsched.resources.allocated import AllocatedGpus, holding, node_rows
from slurmsched.resources.startable_jobs import HOLDS, MAY_START, job_standing
from slurmsched.sim.ideal.changed_jobs import held_types, nodes_for, stopped, with_changes
from slurmsched.sim.ideal.ideal_plan import UNTIL_ANY_EVENT, IdealPlan, NodeFinder, Validity
from slurmsched.sim.ideal.node_finder import ArrivalNodes
from slurmsched.sim.ideal.overtaking import Overtaking, arrivals_go_last, overtaking_of, waits_for_room


def hosts_of(snapshot: Snapshot, changes: JobChanges | None) -> Int64s | None:
    """Row of the job on whose GPUs each is to run, -1 = on its own; None if the policy has no word on that. (N,).

    A job whose host is not there, or asks for another number of GPUs, is on its own.
    """
    if changes is None or changes.beside is None:
        return None
    jobs = snapshot.jobs
    row = np.minimum(np.searchsorted(jobs.job_id, changes.beside), max(len(jobs) - 1, 0))
    fits = (changes.beside >= 0) & (jobs.job_id[row] == changes.beside) & (jobs.gpus[row] == jobs.gpus)
    return np.where(fits, row, -1)


def without_guests(snapshot: Snapshot, ranking: Ranking, host: Int64s) -> Snapshot:
    """The snapshot in which guests neither hold GPUs nor wait, and no two jobs hold the same GPU.

    Of several that hold one now, the first of the ranking keeps it; the others count as waiting: they are to move.
    host: as hosts_of gives it. Only GPUs that are told one by one can be seen to be shared.
    """
    jobs, guests = snapshot.jobs, host >= 0
    leaves = guests | _behind(snapshot, ranking.order, guests)
    moves = leaves & holding(jobs)
    state = np.where(moves, (jobs.state & ~int(HOLDS_NODES)) | int(JobState.PENDING), jobs.state)
    eligible_s = np.where(guests, np.inf, jobs.eligible_s)
    return _without_holders(replace(snapshot, jobs=jobs.with_columns(state=state, eligible_s=eligible_s)), moves)


def _behind(snapshot: Snapshot, order: Int64s, guests: Bools) -> Bools:
    """Who holds a GPU that a job before it in the order holds too, guests apart. (N,) bool."""
    allocated, mask = AllocatedGpus.of(snapshot), _masks(snapshot)
    taken, found = np.zeros(len(snapshot.nodes), np.int64), np.zeros(len(guests), np.bool_)
    for row in order[(allocated.count > 0)[order] & ~guests[order]].tolist():
        part = slice(allocated.first[row], allocated.first[row] + allocated.count[row])
        node = allocated.node[part]
        found[row] = bool((taken[node] & mask[part]).any())
        if not found[row]:
            taken[node] |= mask[part]
    return found


def _masks(snapshot: Snapshot) -> Int64s:
    """GPUs of each entry of Held, as a mask, 0 = not told."""
    allocations, jobs = snapshot.allocations, snapshot.jobs
    known = np.isin(allocations.job_id, jobs.job_id[holding(jobs)]) & (node_rows(snapshot) >= 0)
    return allocations.gpu_mask[known].astype(np.int64)


def _without_holders(snapshot: Snapshot, moves: Bools) -> Snapshot:
    """The snapshot in which these jobs hold nothing; a GPU is free if nobody else holds it."""
    allocations, nodes, node = snapshot.allocations, snapshot.nodes, node_rows(snapshot)
    gone = np.isin(allocations.job_id, snapshot.jobs.job_id[moves])
    given, kept = np.zeros((2, len(nodes)), np.int64)
    for masks, which in ((given, gone), (kept, ~gone)):
        np.bitwise_or.at(masks, node[which & (node >= 0)], allocations.gpu_mask[which & (node >= 0)])
    free = given & ~kept
    used = nodes.gpus_used - np.array([mask.bit_count() for mask in free.tolist()], np.int64)
    nodes = nodes.with_columns(gpus_used=used.astype(np.int32), gpu_mask_used=nodes.gpu_mask_used & ~free)
    return replace(snapshot, allocations=allocations.take(~gone), nodes=nodes)


def with_guests(target: Assignments, host: Int64s) -> Assignments:
    """The target, and after it the guests of jobs that are in it, each on the GPUs of its host.

    host: as hosts_of gives it.
    """
    place = np.full(len(host), -1, np.int64)
    place[target.rows] = np.arange(len(target.rows))
    guests = np.flatnonzero(host >= 0)
    guests = guests[place[host[guests]] >= 0]
    if not len(guests):
        return target
    at = place[host[guests]]
    count = target.count[at]
    first = len(target.node) + np.cumsum(count) - count
    entry = np.repeat(target.first[at] - np.cumsum(count) + count, count) + np.arange(int(count.sum()))
    mask = target.gpu_mask
    columns = [(target.rows, guests), (target.first, first), (target.count, count), (target.node, target.node[entry]),
               (target.gpus, target.gpus[entry]), (mask, mask[entry] if len(mask) else mask),
               (np.full(len(target.rows), -1, np.int64), host[guests])]  # fmt: skip
    return Assignments(*(made_read_only(np.concatenate(pair)) for pair in columns))


# Gangs on GPUs of several types at once.

PlaceFunction = Callable[[Snapshot, Ranking], Assignments]
TRIES = 8  # gangs given up one by one, the most urgent first; then all at once that are torn


def placed_whole(place: PlaceFunction, snapshot: Snapshot, ranking: Ranking) -> Assignments:
    """What `place` says of a snapshot that is as wanted, every gang whole though it be on several GPU types.

    A gang of which only some parts find room has none, and the others are placed anew without it: those before it in
    the order have all they want by then, so that it could not start anyway. Raises ConfigError for a placement that
    does not heed eligible_s: it would be asked for ever.
    """
    wanted = None if ranking.changes is None else ranking.changes.gpus_by_type
    if wanted is None or wanted.names in ((), ("",)):
        return place(snapshot, ranking)
    split, tries, out = GangParts.of(snapshot, ranking, wanted), 0, set[int]()
    target = place(split.snapshot, split.ranking)
    while len(torn := split.torn(target)):
        if not out.isdisjoint(torn.tolist()):
            raise ConfigError("places jobs before their eligible_s", key="placement.name")
        gone = torn[:1] if tries < TRIES else torn
        split, tries, out = split.without(gone), tries + 1, out | set(gone.tolist())
        target = place(split.snapshot, split.ranking)
    return split.joined(target)


@dataclass(frozen=True, slots=True, eq=False)
class GangParts:
    """A snapshot in which each part of such a gang is a job.

    snapshot: the first part of a gang stands in its row, the others behind all jobs.
    ranking: the parts of a gang one after the other.
    whole: (M,) row of the gang, or job, that each row belongs to.
    """

    snapshot: Snapshot
    ranking: Ranking
    whole: Int64s

    @classmethod
    def of(cls, snapshot: Snapshot, ranking: Ranking, gpus_by_type: Labels) -> GangParts:
        """The parts of gangs that are to have GPUs of several types. gpus_by_type: (N,), see JobChanges."""
        jobs = snapshot.jobs
        gangs = np.flatnonzero(~gpus_by_type.isin([""])).tolist()
        shares = [(row, name, gpus) for row in gangs for name, gpus in sorted(types_of(gpus_by_type[row]).items())]
        gang, further = np.array([row for row, _, _ in shares], np.int64), np.zeros(len(shares), np.bool_)
        further[1:] = gang[1:] == gang[:-1]
        whole = np.append(np.arange(len(jobs)), gang[further])
        rows = np.where(further, len(jobs) - 1 + np.cumsum(further), gang).tolist()
        split = _split(snapshot, whole, {row: (name, gpus) for row, (_, name, gpus) in zip(rows, shares, strict=True)})
        part_of = {(int(jobs.job_id[row]), name): int(split.job_id[at]) for at, (row, name, _) in
                   zip(rows, shares, strict=True)}  # fmt: skip
        place = np.empty(len(jobs), np.int64)
        place[ranking.order] = np.arange(len(jobs))
        order = np.lexsort((np.arange(len(whole)), place[whole]))
        return cls(replace(snapshot, jobs=split, allocations=_dealt(snapshot, part_of)), Ranking(order), whole)

    def torn(self, target: Assignments) -> Int64s:
        """Rows of the gangs of which some parts have room and some have not, most urgent first."""
        parts = np.bincount(self.whole)
        placed = np.bincount(self.whole[target.rows], minlength=len(parts))
        order = self.ranking.order[self.ranking.order < len(parts)]
        return order[((placed > 0) & (placed < parts))[order]]

    def without(self, gangs: Int64s) -> GangParts:
        """The same, but these gangs hold nothing and do not start."""
        out, jobs = np.isin(self.whole, gangs), self.snapshot.jobs
        later = jobs.with_columns(eligible_s=np.where(out, np.inf, jobs.eligible_s))
        return replace(self, snapshot=stopped(replace(self.snapshot, jobs=later), out))

    def joined(self, target: Assignments) -> Assignments:
        """The target in rows of the jobs before the split, the nodes of each ascending and named once."""
        rows, begin, rank = np.unique(self.whole[target.rows], return_index=True, return_inverse=True)
        by_order, place = np.argsort(begin), np.empty(len(rows), np.int64)
        place[by_order] = np.arange(len(rows))
        width = len(self.snapshot.nodes) + 1
        key = np.repeat(place[rank.reshape(-1)], target.count) * width + target.node
        order = np.argsort(key, kind="stable")
        once, first = np.unique(key[order], return_index=True)
        job, node = np.divmod(once, width)
        count = np.bincount(job, minlength=len(rows)).astype(np.int64)
        gpus = _over(np.add, target.gpus[order], first)
        mask = _over(np.bitwise_or, target.gpu_mask[order], first) if len(target.gpu_mask) else target.gpu_mask
        columns = (rows[by_order], np.cumsum(count) - count, count, node, gpus, mask)
        return Assignments(*(made_read_only(np.array(column, np.int64)) for column in columns))


def _over(function: np.ufunc, values: Int64s, first: Int64s) -> Int64s:
    """The function over each stretch of values. first: (S,) where they begin. (S,)."""
    return np.asarray(function.reduceat(values, first)) if len(first) else values


def _split(snapshot: Snapshot, whole: Int64s, wanted: dict[int, tuple[str, int]]) -> Jobs:
    """The jobs, one for each part. whole: see Parts. wanted: type and GPUs by row of a part."""
    jobs = snapshot.jobs.take(whole)
    gpus, request = jobs.gpus.astype(np.int64), list(jobs.gpu_request)
    for row, (name, count) in wanted.items():
        gpus[row], request[row] = count, f"gpu:{name}:{count}"
    job_id, extra = jobs.job_id.copy(), len(whole) - len(snapshot.jobs)
    job_id[len(whole) - extra :] = job_id.max(initial=0) + 1 + np.arange(extra)
    share = gpus / np.maximum(jobs.gpus, 1)
    columns: dict[str, Any] = {
        "job_id": job_id, "gpus": gpus, "gpu_request": request, "nodes": nodes_for(replace(snapshot, jobs=jobs), gpus),
        "cpus": np.rint(jobs.cpus * share), "memory_mib": jobs.memory_mib * share,
    }  # fmt: skip
    return jobs.with_columns(**columns)


def _dealt(snapshot: Snapshot, part_of: dict[tuple[int, str], int]) -> Allocations:
    """The allocations, those of a gang as of its parts. part_of: job id of a part by that of its gang and its type."""
    allocations = snapshot.allocations
    pairs = zip(allocations.job_id.tolist(), held_types(snapshot), strict=True)
    job_id = np.array([part_of.get(pair, pair[0]) for pair in pairs], np.int64)
    return allocations.with_columns(job_id=job_id).take(np.lexsort((node_rows(snapshot), job_id)))


# Plans for an ideal cluster.

Filling = Literal["skip", "block", "easy", "conservative"]
FILLINGS: tuple[Filling, ...] = ("skip", "block", "easy", "conservative")


@dataclass(frozen=True, slots=True)
class DirectPlanner:
    """Rank, place, and name the target. A `Planner`; what it plans is enacted, not steered by priorities.

    filling: who gets GPUs that the first waiting job cannot use. "skip": every later job that fits. "block": nobody.
    "easy": later jobs that do not delay it (EASY backfill; the placement must offer `backfill`). "conservative": those
    that delay none before them (it must offer `reserve`).
    each_order: plan again at each change of the order and each event, whether or not GPUs change hands: where a new
    order costs something, or jobs may go on to better GPUs.
    counted: each snapshot has one node, and each of its jobs waits or runs: GPUs are only counted, as by the placement
    `count`, but faster.
    moldable: waiting jobs with the hint `moldable` may start with fewer GPUs, as by `lever.moldable`.
    A preemptive policy orders running and waiting jobs alike; under any other one running jobs keep their GPUs.
    Raises ConfigError for another filling, and for one that policy or placement cannot do.
    """

    policy: Policy
    placement: Placement
    filling: Filling = "skip"
    each_order: bool = False
    counted: bool = False
    moldable: bool = False
    changing: ChangingPolicy | None = field(init=False, repr=False, compare=False, default=None)
    overtaking: Overtaking | None = field(init=False, repr=False, compare=False, default=None)
    _finders: dict[Labels, ArrivalNodes | None] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.filling not in FILLINGS:
            raise ConfigError(f"must be one of {', '.join(FILLINGS)}, got {self.filling!r}", key="filling")
        needed = {"easy": BackfillingPlacement, "conservative": ReservingPlacement}.get(self.filling)
        if needed and not isinstance(self.placement, needed):
            raise ConfigError(f"{type(self.placement).__name__} cannot backfill; choose skip or block", key="filling")
        if self.filling != "skip" and self.preemptive:
            raise ConfigError(f"{type(self.policy).__name__} preempts, which needs skip", key="filling")
        if isinstance(self.policy, ChangingPolicy):
            object.__setattr__(self, "changing", self.policy)
        if self.preemptive and not self.each_order:
            object.__setattr__(self, "overtaking", overtaking_of(self.policy))

    @property
    def preemptive(self) -> bool:
        return is_preemptive(self.policy)

    @property
    def settled(self) -> bool:
        """Whether the order of waiting jobs never changes, so that one plan serves the whole queue."""
        return self.filling == "block" and not self.moldable and arrivals_go_last(self.policy)

    def plan(self, snapshot: Snapshot) -> IdealPlan:
        """Who should hold GPUs now. The same snapshot gives the same plan."""
        ranking = self.policy.rank(snapshot)
        if self.moldable:
            from slurmsched.sim.moldable_starts import moldable_ranking  # late, with pydantic

            ranking = moldable_ranking(ranking, snapshot)
        if self.counted and self.preemptive and ranking.changes is None:
            return self._counted(snapshot, ranking)
        host = hosts_of(snapshot, ranking.changes)
        alone = snapshot if host is None else without_guests(snapshot, ranking, host)
        wanted = with_changes(alone, ranking.changes)
        target = placed_whole(self._target, wanted, ranking)
        target = target if host is None else with_guests(target, host)
        return self._plan(snapshot, ranking, wanted, target, _waiting(wanted, ranking, target))

    def _counted(self, snapshot: Snapshot, ranking: Ranking) -> IdealPlan:
        """As plan does it, in one pass."""
        gpus, rows = snapshot.jobs.gpus, len(snapshot.jobs)
        placed, queue = np.empty((5, rows), np.int64), np.empty((2, rows), np.int64)
        running, capacity = np.empty(rows, np.bool_), int(snapshot.nodes.gpus[0])
        served, waiting, need = count_in_order(ranking.order, gpus, capacity, placed, running, queue)
        target = Assignments(*made_read_only(placed)[:, :served])
        queued, needs = made_read_only(queue)[:, :waiting]
        return self._plan(snapshot, ranking, snapshot, target, _Waiting(queued, needs, running, 0, need))

    def _plan(
        self, snapshot: Snapshot, ranking: Ranking, wanted: Snapshot, target: Assignments, waiting: _Waiting
    ) -> IdealPlan:
        """The plan of this target. wanted: the snapshot with what the policy changes of jobs."""
        next_look_s, validity = self._valid(snapshot, ranking, wanted, waiting)
        if validity.preempts and self.overtaking and not self.counted and waits_for_room(self.placement):
            needs = _node_needs(wanted, ranking, target, waiting)
            if needs.min() > 0:
                validity = replace(validity, node_needs=needs, finder=self._finder(snapshot))
            else:  # one that had to go finds room elsewhere in the next plan
                next_look_s = self._change_s(snapshot, ranking, waiting.running)
        return IdealPlan(
            notes=ranking.notes, ranking=ranking, next_look_s=next_look_s, target=target, validity=validity
        )

    def _target(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        if self.preemptive:
            return self.placement.place(snapshot, ranking)
        if self.filling == "easy":
            return self.placement.backfill(snapshot, ranking)  # type: ignore[attr-defined]  # checked when made
        if self.filling == "conservative":
            return self.placement.reserve(snapshot, ranking)  # type: ignore[attr-defined]
        stands = job_standing(snapshot)
        in_order = stands[ranking.order]
        order = np.concatenate([ranking.order[in_order == HOLDS], ranking.order[in_order == MAY_START]])
        target = self.placement.place(snapshot, Ranking(order))
        return target if self.filling == "skip" else _blocked(order, stands, target)

    def _valid(
        self, snapshot: Snapshot, ranking: Ranking, wanted: Snapshot, waiting: _Waiting
    ) -> tuple[float, Validity]:
        """When to plan again though nothing happens [Unix s], and what may happen before."""
        rows, needs, running = waiting.rows, waiting.needs, waiting.running
        if ranking.changes is not None:  # running jobs may move to another size or type, though nobody waits
            return min(self._change_s(snapshot, ranking, running), _begin_s(wanted, ranking)), UNTIL_ANY_EVENT
        if not len(rows):
            finder = self._finder(snapshot)
            return math.inf, Validity(all_run=True, queue=rows if self.settled else None, finder=finder)
        if self.overtaking is not None:
            keeps_gpu_s = self.overtaking.keeps_gpu_s
            need = max(waiting.least_need, 0)
            validity = Validity(need, preempts=True, keeps_gpu_s=keeps_gpu_s, queue=rows, needs=needs)
            return self.overtaking.next_s(snapshot, running), validity
        head_gpus = int(wanted.jobs.gpus[rows[0]])
        return self._change_s(snapshot, ranking, running), self._without_queue(waiting.least_gpus, head_gpus, rows)

    def _finder(self, snapshot: Snapshot) -> NodeFinder | None:
        """Who finds nodes for jobs that come, made once for these nodes; None if the policy may have to see each."""
        known = self.overtaking is not None or arrivals_go_last(self.policy)
        if not known or self.counted or self.moldable or self.each_order or not len(snapshot.jobs):
            return None
        names = snapshot.nodes.name
        if names not in self._finders:
            self._finders.clear()
            self._finders[names] = ArrivalNodes.of(self.placement, snapshot)
        return self._finders[names]

    def _change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When the order changes though nothing happens [Unix s]; infinity if never."""
        return math.inf if self.changing is None else float(self.changing.next_change_s(snapshot, ranking, running))

    def _without_queue(self, least: int, head_gpus: int, waiting: Int64s) -> Validity:
        """What may happen before the next plan of a policy that is not known to keep its order.

        least, head_gpus: GPUs of the smallest and of the first job that waits. waiting: rows that wait, in order.
        """
        if self.preemptive:
            return Validity(preempts=True)
        if self.filling != "block":
            return Validity(least)
        return Validity(head_gpus, arrivals=not self.settled, queue=waiting if self.settled else None)


class _Waiting(NamedTuple):
    """Jobs that wait once the target holds. All in the order of the ranking.

    rows: (Q,) those that wait, preempted ones too.
    needs: (Q,) see Validity.
    running: (N,) who runs.
    least_gpus: fewest GPUs that one asks for.
    least_need: the least of the needs.
    """

    rows: Int64s
    needs: Int64s
    running: Bools
    least_gpus: int
    least_need: int


def _waiting(wanted: Snapshot, ranking: Ranking, target: Assignments) -> _Waiting:
    stands, gpus = job_standing(wanted), wanted.jobs.gpus
    queue, running = np.empty((2, len(stands)), np.int64), np.empty(len(stands), np.bool_)
    least, waiting, need = who_waits(ranking.order, stands, target.rows, gpus, running, queue)
    rows, needs = made_read_only(queue)[:, :waiting]
    return _Waiting(rows, needs, running, least, need)


def _node_needs(wanted: Snapshot, ranking: Ranking, target: Assignments, waiting: _Waiting) -> Int64s:
    """See Validity."""
    jobs, waits = wanted.jobs, np.zeros(len(wanted.jobs), np.bool_)
    waits[waiting.rows] = True
    placed, held = (target.rows, target.first, target.count), (target.node, target.gpus)
    capacity = wanted.nodes.gpus.astype(np.int64)
    needs: Int64s = room_needed(ranking.order, waits, jobs.gpus, jobs.nodes, placed, held, capacity)
    return needs


def _begin_s(wanted: Snapshot, ranking: Ranking) -> float:
    """When the next job that the policy holds back may start [Unix s], infinity if it holds none."""
    if ranking.changes is None or ranking.changes.start_s is None:
        return math.inf
    begin_s = wanted.jobs.eligible_s[wanted.jobs.pending]
    return float(np.min(begin_s, initial=math.inf, where=begin_s > wanted.now_s))


def _blocked(order: Int64s, stands: Int64s, target: Assignments) -> Assignments:
    """The target without what is placed after the first waiting job that does not fit.

    order: rows that hold or may start, as placed. stands: as job_standing gives it.
    """
    served = np.zeros(len(stands), np.bool_)
    served[target.rows] = True
    blocked = ~served[order] & (stands[order] == MAY_START)
    if not blocked.any():
        return target
    kept = int(np.count_nonzero(served[order[: blocked.argmax()]]))
    last = int(target.count[:kept].sum())
    of_job = {name: getattr(target, name)[:kept] for name in ("rows", "first", "count", "cpus", "memory_mib")}
    of_place = {name: getattr(target, name)[:last] for name in ("node", "gpus", "gpu_mask")}
    return replace(target, **of_job, **of_place)
