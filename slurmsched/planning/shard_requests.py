"""Shards for pending jobs of one GPU that may share it, always or where no whole GPU is free: given and given back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from slurmsched.config import LeverConfig
from slurmsched.estimators.group_speeds import MOST_JOBS as MOST_BESIDE
from slurmsched.estimators.group_speeds import GroupSpeeds
from slurmsched.estimators.throughput_table import kind_of_job
from slurmsched.model import Ranking, Refusal, Rights, SetShardNode, SetShards, Snapshot, Step
from slurmsched.model.columns import Bools, Floats, Int64s, Labels
from slurmsched.model.gpu_selection import counted
from slurmsched.model.gres import SHARING, device_shards, sharing_kind
from slurmsched.model.hints import hint_column, parse_hints
from slurmsched.planning.gate import shards_of_part
from slurmsched.planning.host_resources import CPUS, MOST_JOBS, RemainingRoom
from slurmsched.planning.job_overrides import (
    SHARD_FIELDS,
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
from slurmsched.planning.proposals import Budget, Lever, Proposal
from slurmsched.resources.by_type import has_several_types
from slurmsched.resources.eligibility import eligibility
from slurmsched.resources.job_request import JobRequest, request_of
from slurmsched.resources.startable_jobs import not_waiting_for_gpus, startable

if TYPE_CHECKING:
    from slurmsched.planning.planner import Planner

NO_SPEEDS = GroupSpeeds()
MOST_LOOKED = 64  # equally full GPUs whose jobs are looked at
ROUNDING = 1e-9
JobSteps = tuple[tuple[Step, ...], JobOverrides]
_UNCOUNTED = "AccountingStorageTRES lacks {}, so limits and fair share would not see its part"
_NAMES = {"shard": "shards", "mps": "MPS"}
_SCARCE = "no whole GPU is free for it, and "
_NO_PART = "it may have no part of a GPU there any more"
_OWN = f"a whole GPU is free for it, or {_NO_PART}"
_LIMIT = "it waits for a limit that its own request may meet"


@dataclass(frozen=True, slots=True)
class ShardLever(Lever):
    """Writes shards and a node in place of one GPU; what is on record goes back also after the lever is turned off.

    Source: the choice of the fullest shared GPU is Packing of Weng et al. (FGD), USENIX ATC '23, section 6. That only
    pending jobs change, and by their hints, is ours.
    """

    config: LeverConfig
    timeout_s: float
    speeds: GroupSpeeds = NO_SPEEDS

    @classmethod
    def of(cls, planner: Planner) -> ShardLever:
        return cls(planner.lever, planner.placement_config.start_timeout_s, GroupSpeeds(measured=planner.profiles))

    def as_submitted(self, snapshot: Snapshot) -> Snapshot:
        return with_own_gpus(snapshot)

    def reorder(self, snapshot: Snapshot, ranking: Ranking) -> Ranking:
        return guests_first(snapshot, ranking, self.speeds) if self.config.share else ranking

    def propose(self, snapshot: Snapshot, ranking: Ranking, budget: Budget) -> Proposal:
        if snapshot.site.rights < Rights.OPERATOR:
            return Proposal()
        managed = budget.without(budget.changed_by("start", "size", "cpus", "memory"), snapshot.jobs.job_id)
        return shard_requests(
            snapshot, ranking, managed, self.config, self.timeout_s, budget.writes, self.speeds
        )  # fmt: skip

    @staticmethod
    def restore(snapshot: Snapshot) -> Proposal:
        return restore_proposal(snapshot, SHARD_FIELDS, "undo: its own node list and request")

    settled = staticmethod(settled_list)


def with_own_gpus(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which pending jobs ask for the GPU and the nodes that their users named."""
    jobs, own = snapshot.jobs, own_lists(snapshot, SHARD_FIELDS)
    if own is jobs:
        return snapshot
    ours = jobs.pending & (jobs.shards > 0) & (jobs.gpus == 0) & _differs(jobs.gpu_request, own.gpu_request)
    rows = np.flatnonzero(ours)
    columns = {name: getattr(jobs, name).copy() for name in ("gpus", "shards")}
    columns["gpus"][rows], columns["shards"][rows] = 1, 0
    texts = {name: list(getattr(jobs, name)) for name in ("nodes_asked", "gpu_request", "gpus_by")}
    for row in rows.tolist():
        texts["gpu_request"][row], texts["gpus_by"][row] = own.gpu_request[row], "node"
    for row in np.flatnonzero(jobs.pending).tolist():
        texts["nodes_asked"][row] = own.nodes_asked[row]
    named = {name: Labels.of(values) for name, values in texts.items()}
    return replace(snapshot, jobs=jobs.with_columns(**columns, **named))


def _differs(some: Labels, others: Labels) -> Bools:
    return np.array([one != other for one, other in zip(some, others, strict=True)], np.bool_)


def guests_first(snapshot: Snapshot, ranking: Ranking, speeds: GroupSpeeds = NO_SPEEDS) -> Ranking:
    """The ranking with the jobs first whose part of a shared GPU is free now: they take no GPU from another job.

    Behind a job that waits for a whole GPU they would wait too: Slurm's backfill takes the shared GPU for a free one
    and keeps the node for that job (seen on 26.05.5).
    """
    active, _, _ = on_record(snapshot, SHARD_FIELDS)
    if not active:
        return ranking
    walk, first = ShardWalk(with_own_gpus(snapshot), active, speeds), np.zeros(len(snapshot.jobs), np.bool_)
    ours = [row for row in active if snapshot.jobs.shards[row] > 0]
    for row in ranking.order[np.isin(ranking.order, ours)].tolist():
        first[row] = walk.joins(row)
    if not first.any():
        return ranking
    ahead = first[ranking.order]
    order = np.concatenate([ranking.order[ahead], ranking.order[~ahead]])
    return replace(ranking, order=order, why={**ranking.why, "joins_shared_gpu": first})


# Over 30 lines: a third is signature and docstring.
def shard_requests(
    snapshot: Snapshot, ranking: Ranking, managed: Bools, config: LeverConfig, timeout_s: float, most: int = 500,
    speeds: GroupSpeeds = NO_SPEEDS,
) -> Proposal:  # fmt: skip
    """Shards to give, and those to give back. snapshot: as read. managed: (N,) bool. most: writes of this cycle.

    Jobs of one GPU are looked at, most urgent first, that have the hint share=yes. Their part is the hint gpu_part,
    else what jobs like them needed as measured. One whose own request fits keeps it, but not with share_always. Another
    one gets its part:

    - on the fullest GPU with shards in use that has room for it, with that node as its node list. Where speeds has
      measured pairs, of equally full GPUs it is the one whose jobs and itself lose the least speed. A GPU is left out
      where they would lose more than the job makes there, as measured;
    - else beside other such jobs that wait: they ask for shards without a node list, if they fit into one GPU together
      and every node that they may have has shards. The first of them starts where its own request would have started;
    - else, with share_always, in the same way for jobs that come later.

    timeout_s: from a node list until a job that has not started there gets its own request back for good [s].
    """
    others, known = untouched(snapshot, but=SHARD_FIELDS), by_job(snapshot.overrides, SHARD_FIELDS)
    active, partly_changed, changed = on_record(snapshot, SHARD_FIELDS)
    active = {row: ours for row, ours in active.items() if not others[row]}
    partly_changed = {row: ours for row, ours in partly_changed.items() if not others[row]}
    base, limited = with_own_gpus(snapshot), not_waiting_for_gpus(snapshot.jobs)
    over = {row: note for row, ours in active.items() if (note := _over(snapshot, ours, timeout_s, bool(limited[row])))}
    alone = left_alone(base.jobs, (*known, *changed, *partly_changed.values()))
    ready = managed & ~others & ~alone & ~np.isin(np.arange(len(base.jobs)), list(over))
    asked = ready & _may_share(base) & config.share
    refused = tuple(_refusals(base, asked))
    asked &= ~np.isnan(_parts(base))
    fit = asked & base.jobs.gpus_by.isin(["node"])
    walk, own = ShardWalk(base, active, speeds, config.share_always), _NO_PART if config.share_always else _OWN
    if fit.any():
        walk.go(ranking.order, fit)
    back = [
        restore_steps(snapshot, row, ours, over.get(row, own), abandoned=row in over)
        for row, ours in active.items()
        if not ours.unanswered and (not ours.request.open or walk.outgrown(row))
    ]
    changes: list[JobSteps] = [
        *(restore_steps(snapshot, row, ours, ours.note, abandoned=True) for row, ours in partly_changed.items()),
        *back,
        *(_given(snapshot, row, part) for row, part in walk.chosen.items() if row not in active),
    ]
    return _within(changes, changed, refused, most)


def _over(snapshot: Snapshot, ours: JobOverrides, timeout_s: float, limited: bool) -> str:
    """Why a job gets its own request back and no shards any more until it is submitted again; "" = it may keep them."""
    if ours.nodes.open and snapshot.now_s - ours.since_s > timeout_s:
        return f"it did not start within {timeout_s:g} s"
    return _LIMIT if limited else ""


def _may_share(base: Snapshot) -> Bools:
    """Waiting jobs of one GPU whose users let them have a part of one. They name it, or it was looked for in what was
    measured. (N,) bool."""
    jobs = base.jobs
    sized = ~np.isnan(_parts(base)) | ~jobs.measured_part_why.isin([""])
    found = startable(base) & (hint_column(jobs, "share") == 1) & sized
    one = (jobs.gpus == 1) & (jobs.nodes == 1) & (jobs.shards == 0) & (jobs.mig_devices == 0)
    one &= (jobs.array_job_id == 0) & (jobs.het_job_id == 0) & ~jobs.exclusive
    return found & one & ~not_waiting_for_gpus(jobs)


def _parts(base: Snapshot) -> Floats:
    """The part of a GPU that each job may have: as its hint says, else as measured; NaN = not known. (N,)."""
    hinted = hint_column(base.jobs, "gpu_part")
    return np.where(np.isnan(hinted), base.jobs.measured_part, hinted)


def _refusals(base: Snapshot, asked: Bools) -> Iterable[Refusal]:
    """Why jobs that may share keep their own request."""
    jobs, has = base.jobs, {kind for text in base.nodes.shards.names if (kind := sharing_kind(text))} or {SHARING[0]}
    uncounted = sorted(f"gres/{kind}" for kind in has if not base.site.accounts_gres(kind))
    unknown = np.isnan(_parts(base))
    for row in np.flatnonzero(asked).tolist():
        if unknown[row]:
            yield Refusal(
                int(jobs.job_id[row]), "share-part", f"it has no gpu_part hint; {jobs.measured_part_why[row]}"
            )
        elif len(uncounted) == len(has):
            yield Refusal(int(jobs.job_id[row]), "share-accounting", _UNCOUNTED.format(" and ".join(uncounted)))
        elif jobs.gpus_by[row] != "node":
            by = {"job": "--gpus", "task": "--gpus-per-task", "socket": "--gpus-per-socket"}.get(jobs.gpus_by[row], "")
            words = f"it asks for its GPU by {by or 'an unknown option'}; only one by node can become shards"
            yield Refusal(int(jobs.job_id[row]), "share-form", words)


@dataclass(frozen=True, slots=True)
class GpuPart:
    """What one job gets.

    shards: number that it asks for.
    size: shards of a GPU there.
    node: name of its node, "" = any that has shards.
    why: the reason in words.
    kind: "shard" or "mps".
    measured: the part that was measured, 0 where the hint gpu_part names it.
    """

    shards: int
    size: int
    node: str
    why: str
    kind: str
    measured: float


@dataclass(slots=True, eq=False)
class ShardWalk:
    """Parts of GPUs for waiting jobs, most urgent first; each takes what it would start with.

    base: with the jobs' own requests.
    active: shards of ours that jobs have now, by row.
    speeds: what jobs keep of their speed beside each other; looked at if it has measured pairs.
    always: also where a whole GPU is free.
    chosen: the part of each job that is to have one, by row.
    guests: rows of the jobs that join each GPU in this walk, by node and GPU.
    running: rows of the running jobs on each shared GPU, by its name; filled when it is first needed.
    used, size: (N, G) shards in use and in all on each GPU, 0 where there is none.
    """

    base: Snapshot
    active: dict[int, JobOverrides]
    speeds: GroupSpeeds = NO_SPEEDS
    always: bool = False
    chosen: dict[int, GpuPart] = field(default_factory=dict)
    guests: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    running: dict[str, list[int]] = field(default_factory=dict)
    used: Int64s = field(init=False)
    size: Int64s = field(init=False)
    part: Floats = field(init=False)
    room: RemainingRoom = field(init=False)

    def __post_init__(self) -> None:
        self.used, self.size = _shards(self.base)
        self.part = _parts(self.base)
        self.room = RemainingRoom(self.base, CPUS)

    def go(self, order: Int64s, asked: Bools) -> None:
        """Look at these jobs, and at the others that would start before them where it matters that a whole GPU is free.
        order: rows, most urgent first."""
        jobs, alone, walk = self.base.jobs, list[int](), asked
        if not self.always:
            walk = asked | (startable(self.base) & (jobs.gpus > 0) & ~not_waiting_for_gpus(jobs))
        for row in order[walk[order]][:MOST_JOBS].tolist():
            if not asked[row] or (not self.always and self._fits_whole(row)):
                self.room.take_own(row)
            elif not self.joins(row) and not (row in self.active and self.active[row].nodes.open):
                alone.append(row)
                if self.always:
                    self.room.take_own(row)  # it may start on a whole GPU
        self._together(alone)

    def _fits_whole(self, row: int) -> bool:
        """Whether a whole GPU is free for the job."""
        return bool(self.room.free(request_of(self.base, row))[1].any())

    def joins(self, row: int) -> bool:
        """Let the job have its part of the fullest GPU with shards in use; whether there is one.

        A node that it has by us comes first.
        """
        if np.isnan(self.part[row]):
            return False  # its user has taken the hint back
        request = request_of(self.base, row)
        fits = self._beside(request)
        has = str(self.active[row].nodes.sent) if row in self.active else ""
        own = fits & self.base.nodes.name.isin([has])
        need = shards_of_part(self.part[row], self.size)
        spare = (self.size - self.used - need) / np.maximum(self.size, 1)
        good = (self.used > 0) & (spare >= 0) & (own if own.any() else fits)[:, None]
        if (found := self._fullest(row, np.where(good, spare, np.inf))) is None:
            return False
        node, gpu = found
        name, size, shards = self.base.nodes.name[int(node)], int(self.size[node, gpu]), int(need[node, gpu])
        if row in self.active and self.active[row].nodes.open and name != has:
            return False  # it gets its own request back first
        self.used[node, gpu] += shards
        self.guests.setdefault((int(node), int(gpu)), []).append(row)
        self.room.take_on(int(node), replace(request, gpus=0))
        kind = sharing_kind(self.base.nodes.shards[int(node)])
        why = f"a shared GPU of {name} has its part: {shards} of {size} {_NAMES[kind]}"
        kept = row in self.active and not self.active[row].nodes.open
        self._choose(row, shards, size, "" if kept else name, why, kind)
        return True

    def _fullest(self, row: int, spare: Floats) -> tuple[int, int] | None:
        """Node and GPU with the least spare room; of equals the one where the least speed is lost, then the first.

        spare: (N, G) of each GPU, infinity where the job may not go.
        """
        if not self.speeds.measured:
            least = np.unravel_index(int(spare.argmin()), spare.shape)
            return (int(least[0]), int(least[1])) if np.isfinite(spare[least]) else None
        room = spare.ravel()
        while np.isfinite(level := float(room.min())):
            equal = np.flatnonzero(room == level)
            places = equal[:MOST_LOOKED].tolist()
            lost = {place: self._lost(row, *divmod(place, spare.shape[1])) for place in places}
            best = min(lost, key=lost.__getitem__)
            if lost[best] < 1.0:
                return divmod(best, spare.shape[1])
            room[equal] = np.inf
        return None

    def _lost(self, row: int, node: int, gpu: int) -> float:
        """Speed that is lost in all if the job joins those on a GPU; less than 1, unless the daemon measured it."""
        jobs = self.base.jobs
        if not self.running:
            for each in np.flatnonzero(jobs.running & ~jobs.shared_gpu.isin([""])).tolist():
                self.running.setdefault(jobs.shared_gpu[each], []).append(each)
        there = self.running.get(f"{self.base.nodes.name[node]} {gpu}", ())
        group = [*there, *self.guests.get((node, gpu), ())]
        if not 0 < len(group) < MOST_BESIDE:
            return 0.0
        kinds = [kind_of_job(jobs, each) for each in (*group, row)]
        found = self.speeds.kept(kinds, 1)
        more = sum(self.speeds.kept(kinds[:-1], 1).kept) - sum(found.kept[:-1]) + 1.0 - found.kept[-1]
        return more if found.source == "profiles" else min(more, 1.0 - ROUNDING)

    def _choose(self, row: int, shards: int, size: int, node: str, why: str, kind: str) -> None:
        jobs, why = self.base.jobs, why if self.always else _SCARCE + why
        measured = float(jobs.measured_part[row]) if parse_hints(jobs.comment[row]).gpu_part is None else 0.0
        why += f"; its part is measured: {jobs.measured_part_why[row]}" if measured else ""
        self.chosen[row] = GpuPart(shards, size, node, why, kind, measured)

    def outgrown(self, row: int) -> bool:
        """Whether a job with shards of ours is to have none, or more than it asks for."""
        part = self.chosen.get(row)
        return part is None or part.shards > counted(str(self.active[row].request.sent))

    def _beside(self, request: JobRequest) -> Bools:
        """Nodes that the job may have for sure, with its CPUs and memory free, whoever has the GPUs. (N,) bool."""
        found = eligibility(self.base, request)
        _, fits = self.room.free(replace(request, gpus=0, types=()))
        return found.mask & found.sure & fits

    def _together(self, rows: list[int]) -> None:
        """Let these jobs ask for shards without a node list where they fit into one GPU together. rows: most urgent
        first. One that has shards of ours already keeps them."""
        groups, size, kind = dict[tuple[bytes, str], list[list[int]]](), dict[int, int](), dict[int, str]()
        for row in rows:
            if not (found := self._everywhere(row)):
                continue
            nodes, size[row], kind[row] = found
            of_key = groups.setdefault((nodes, kind[row]), [])
            shards = int(shards_of_part(self.part[row], size[row]))
            room = (group for group in of_key if self._total(group, size) + shards <= size[row])
            group = next(room, None)
            if group is None:
                of_key.append([row])
            else:
                group.append(row)
        for group in (group for of_key in groups.values() for group in of_key):
            for row in group:
                if self.always or len(group) > 1 or (row in self.active and not self.active[row].nodes.open):
                    ids = [str(self.base.jobs.job_id[other]) for other in group if other != row]
                    jobs = f"{'job' if len(ids) == 1 else 'jobs'} {' and '.join(ids)}" if ids else "later jobs"
                    why = f"{jobs} can share a GPU with it"
                    shards = int(shards_of_part(self.part[row], size[row]))
                    self._choose(row, shards, size[row], "", why, kind[row])

    def _total(self, rows: list[int], size: dict[int, int]) -> int:
        return sum(int(shards_of_part(self.part[row], size[row])) for row in rows)

    def _everywhere(self, row: int) -> tuple[bytes, int, str] | None:
        """The nodes that a job may have once they are free, the shards of each of their GPUs, and their kind; None
        unless all have as many of one kind, and a request without a GPU type leads to the same nodes. Slurm gives MPS
        of one GPU of a node at a time, so none may have MPS in use."""
        request = request_of(self.base, row)
        found, typeless = (eligibility(self.base, one, sized=False) for one in (request, replace(request, types=())))
        ever, any_type = (each.ever & (self.base.nodes.gpus > 0) for each in (found, typeless))
        if not found.sure[ever].all():
            return None
        sizes, kinds = self.size[ever], {sharing_kind(text) for text in self.base.nodes.shards.take(ever)}
        most = int(sizes.max(initial=0))
        if len(kinds) != 1 or (kinds == {"mps"} and bool(self.used[ever].any())):
            return None
        same = most > 1 and bool((sizes.max(axis=1) == most).all()) and bool(np.isin(sizes, (0, most)).all())
        return (ever.tobytes(), most, kinds.pop()) if same and np.array_equal(ever, any_type) else None


def _shards(base: Snapshot) -> tuple[Int64s, Int64s]:
    """Shards in use and in all on each GPU, 0 where there is none. (N, G) each. A node with GPUs of several types has
    none: which of them a job would get is not known. Nor has one whose kind of shards accounting does not count."""
    nodes = base.nodes
    counted = {kind: base.site.accounts_gres(kind) for kind in SHARING}
    seen = nodes.shards.map(lambda text: counted.get(sharing_kind(text), False), np.bool_)
    seen = seen & ~has_several_types(nodes.gpu_types)
    of_node = [device_shards(text) if seen[row] else () for row, text in enumerate(nodes.shards)]
    used = np.zeros((len(nodes), max(map(len, of_node), default=0) or 1), np.int64)
    size = used.copy()
    for row, devices in enumerate(of_node):
        for gpu, (taken, has) in enumerate(devices):
            used[row, gpu], size[row, gpu] = taken, has
    return used, size


def _given(snapshot: Snapshot, row: int, part: GpuPart) -> JobSteps:
    """The steps that let a job ask for its part, and its record. The node comes first: with it and its own request it
    starts on a whole GPU at worst."""
    jobs, key = snapshot.jobs, snapshot.jobs.id_and_submit(row)
    name, nodes, gpus, text = (
        operation_of(snapshot, row, SetShards.field),
        jobs.nodes_asked[row],
        jobs.gpu_request[row],
        f"{part.kind}:{part.shards}",
    )
    listed = SetShardNode(*key, part.why, name, part.node, nodes, nodes, picked=True)
    request = SetShards(*key, part.why, name, text, gpus, gpus, part.size, part.measured)
    record = JobOverrides.blank(SHARD_FIELDS, *key, snapshot.now_s).with_all(note=part.why)
    own, asked = record.with_nodes(base=nodes, sent=nodes).nodes, record.with_request(base=gpus, sent=gpus).request
    asked = asked.given(text, snapshot.now_s)
    if not part.node or part.node == nodes:
        return (request,), JobOverrides((own, asked))
    return (listed, request), JobOverrides((own.given(part.node, snapshot.now_s), asked))


def _within(
    changes: list[JobSteps], changed: Iterable[JobOverrides], refused: tuple[Refusal, ...], most: int
) -> Proposal:
    """The first changes, as many as there are writes; the others wait for the next cycle."""
    fits = np.cumsum([len(steps) for steps, _ in changes]) <= most
    kept = [change for change, fit in zip(changes, fits, strict=True) if fit]
    later = tuple(steps[0].job_id for (steps, _), fit in zip(changes, fits, strict=True) if not fit and steps)
    actions = tuple(step for steps, _ in kept for step in steps)
    return Proposal(actions, records_of((*changed, *(record for _, record in kept))), refused, later)
