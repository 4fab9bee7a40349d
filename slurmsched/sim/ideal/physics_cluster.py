"""Which jobs of a simulated cluster hold which GPUs, one by one."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from slurmsched.errors import ConfigError, InputError
from slurmsched.model import Jobs, Labels, Partitions, Plan, Receipt, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s, made_read_only
from slurmsched.model.gpu_masks import bit_counts, lowest_bits
from slurmsched.model.hints import MARK, parse_hints
from slurmsched.model.plan import Assignments
from slurmsched.model.trace import Trace
from slurmsched.plain_text import pluralize
from slurmsched.protocols import (
    ColocatingPhysics,
    LinkSensitivePhysics,
    LossPhysics,
    MixedTypePhysics,
    Physics,
    ProgressPhysics,
    ScalingPhysics,
    TypedPhysics,
)
from slurmsched.resources.by_type import only_type
from slurmsched.sim.ideal.ideal_cluster import IdealCluster, MovableEnds
from slurmsched.sim.ideal.ideal_settings import IdealSettings
from slurmsched.sim.ideal.ideal_snapshot import PARTITION, HeldGpus, NodeArrays
from slurmsched.sim.physics.change_costs import models_named

if TYPE_CHECKING:
    from slurmsched.sim.ideal.cluster_hardware import ClusterHardware


@dataclass(frozen=True, slots=True, eq=False)
class GpuHolders:
    """One entry a job and node, ascending by both. All columns are (A,) int64.

    row: of JobArrays.
    node: its row.
    gpus: how many.
    mask: which ones, bit i for GPU index i.
    """

    row: Int64s
    node: Int64s
    gpus: Int64s
    mask: Int64s

    @classmethod
    def none(cls) -> GpuHolders:
        return cls(*(np.zeros(0, np.int64) for _ in range(4)))

    def take(self, kept: Bools) -> GpuHolders:
        """The entries of a mask."""
        return GpuHolders(self.row[kept], self.node[kept], self.gpus[kept], self.mask[kept])

    def used(self, nodes: int) -> Int64s:
        """GPUs held on each of that many nodes, as masks. (N,)."""
        found = np.zeros(nodes, np.int64)
        np.bitwise_or.at(found, self.node, self.mask)
        return found

    def totals(self) -> tuple[Int64s, Int64s]:
        """Rows that hold something, ascending, and the GPUs of each. (R,) each."""
        rows, first = np.unique(self.row, return_index=True)
        return rows, (np.add.reduceat(self.gpus, first) if len(rows) else np.zeros(0, np.int64))

    def joined(self, guests: Int64s, hosts: Int64s) -> GpuHolders:
        """These entries, and the guests' on what their hosts hold. guests, hosts: (G,) rows, each guest once."""
        entry = [np.flatnonzero(self.row == host) for host in hosts.tolist()]
        row = np.repeat(guests, [len(each) for each in entry])
        every = np.concatenate([np.arange(len(self.row)), *entry])
        rows = np.concatenate([self.row, row])
        order = np.lexsort((self.node[every], rows))
        return GpuHolders(rows[order], self.node[every][order], self.gpus[every][order], self.mask[every][order])

    def assignments(self, seen: Int64s) -> Assignments:
        """The same by rows of the snapshot whose jobs are these rows of JobArrays, ascending."""
        rows, first, count = np.unique(self.row, return_index=True, return_counts=True)
        places = np.searchsorted(seen, rows)
        return Assignments(places, first.astype(np.int64), count.astype(np.int64), self.node, self.gpus, self.mask)

    def moved(self, before: GpuHolders) -> Int64s:
        """Rows, ascending, of entries that were not there before: new jobs and jobs with other GPUs."""
        had = before.masks_of(self)
        return np.unique(self.row[had != self.mask])

    def masks_of(self, others: GpuHolders) -> Int64s:
        """What the job of each entry of the others holds here on its node, 0 = nothing. (B,)."""
        if not len(self.row):
            return np.zeros(len(others.row), np.int64)
        width = 1 + max(int(self.node.max()), int(others.node.max(initial=0)))
        mine, theirs = self.row * width + self.node, others.row * width + others.node
        at = np.minimum(np.searchsorted(mine, theirs), len(mine) - 1)
        return np.where(mine[at] == theirs, self.mask[at], 0)


def assign_gpus(target: Assignments, seen: Int64s, before: GpuHolders, capacity: Int64s) -> GpuHolders:
    """The entries of a target, each with its GPUs.

    Where a placement only counted, a job keeps what it had on that node. A new job takes the lowest free indices. Of
    two jobs that shared GPUs the first keeps them. A guest has the GPUs of its host.
    seen: rows of JobArrays that the target's rows mean.
    before: what those hold that go on.
    capacity: (N,) GPUs of each node.
    """
    if (guests := target.host >= 0).any():
        own = assign_gpus(_without_guests(target), seen, before, capacity)
        return own.joined(seen[target.rows[guests]], seen[target.host[guests]])
    row = np.repeat(seen[target.rows], target.count)
    order = np.argsort(row, kind="stable")  # the nodes of a job ascend already
    asked = target.gpu_mask[order] if len(target.gpu_mask) else np.zeros(len(row), np.int64)
    hands = GpuHolders(row[order], target.node[order], target.gpus[order], asked)
    if asked.all():
        return hands
    had = before.masks_of(hands)
    same = np.array([mask.bit_count() for mask in had.tolist()], np.int64) == hands.gpus
    mask = np.where((asked == 0) & same, had, asked)
    if bit_counts(mask).sum() > bit_counts(replace(hands, mask=mask).used(len(capacity))).sum():  # some overlap
        mask = _once(mask, asked != 0, hands.node)
    return GpuHolders(hands.row, hands.node, hands.gpus, _lowest(mask, hands, capacity))


def _once(mask: Int64s, fixed: Bools, node: Int64s) -> Int64s:
    """The masks without those, not fixed, of which a GPU is in one before them on that node or in a fixed one."""
    made, taken = mask.copy(), dict[int, int]()
    for k in np.argsort(~fixed, kind="stable").tolist():
        here = taken.get(int(node[k]), 0)
        if not fixed[k] and here & int(mask[k]):
            made[k] = 0
        taken[int(node[k])] = here | int(made[k])
    return made


def _without_guests(target: Assignments) -> Assignments:
    """The target without its guests, which are the last of it."""
    kept = int((target.host < 0).sum())
    last = int(target.count[:kept].sum())
    return Assignments(target.rows[:kept], target.first[:kept], target.count[:kept], target.node[:last],
                       target.gpus[:last], target.gpu_mask[:last])  # fmt: skip


def _lowest(mask: Int64s, hands: GpuHolders, capacity: Int64s) -> Int64s:
    """The masks, with the lowest free GPUs of its node for each entry that has none."""
    free = ((np.int64(1) << capacity) - 1) & ~GpuHolders(hands.row, hands.node, hands.gpus, mask).used(len(capacity))
    made = mask.copy()
    for k in np.flatnonzero(mask == 0).tolist():
        node = hands.node[k]
        made[k] = lowest_bits(int(free[node]), int(hands.gpus[k]))
        free[node] &= ~made[k]
    return made


# An ideal cluster whose jobs run as fast as physics says, on GPUs that it tells apart.

_PROGRESS = re.compile(r"\sprogress=\S*", re.IGNORECASE)
_LOSS = re.compile(r"\sloss=\S*", re.IGNORECASE)


class PhysicsCluster(MovableEnds):
    """The ideal cluster on nodes of single GPUs. What is left of a job is kept in seconds at the recorded speed.

    hardware: nodes, GPU types, wiring; snapshots show them, and who holds which GPUs.
    physics: says how fast jobs are whenever they start or change, or, if they share, whenever one ends too; it sees a
        job's model as its name. Jobs of models that it calls insensitive bear the hint `topo=any`; all of them
        `mixed=yes`, where it knows how fast they are on several GPU types at once (`mixed_efficiency`), but for those
        that say otherwise. The costs of changes are the cluster model's.
    Where it knows how fast jobs are on the same GPUs (`colocates`), a plan may give two jobs the same.
    Where the physics tells on which GPU types a job runs, each type is a partition and the job asks for those.
    Where it knows how fast jobs are on other numbers of GPUs, a plan may give elastic jobs those. These bear the hint
    `progress`, and `loss` where the physics tells it, and attained service counts the GPUs that they held.
    scales: whether there are elastic jobs. size: (J,) GPUs that each holds, or held last. resizes: (J,) how often each
    got another number while it ran.
    Raises InputError for a job that could never start.
    """

    # Over 30 lines: one line for each array of the state.
    def __init__(
        self,
        trace: Trace,
        hardware: ClusterHardware,
        physics: Physics,
        model: IdealSettings | None = None,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(trace, hardware.nodes.gpus.tolist(), model, seed=seed)
        self.physics, self.topology = physics, hardware.topology
        self.stage, partition = _partitioned(replace(self.stage, nodes=hardware.nodes), trace, physics)
        self._pile = False  # who goes where is a question on a single node too
        self._models = trace.model.take(np.argsort(trace.job_id, kind="stable"))
        easy = models_named(self._models, physics.insensitive if isinstance(physics, LinkSensitivePhysics) else ())
        mixed = isinstance(physics, MixedTypePhysics) and physics.mixed_efficiency > 0
        texts = dict(self.job_arrays.texts) | {
            "comment": _hinted(self.job_arrays.texts.get("comment"), easy, mixed),
            "partition": partition,
        }
        self.job_arrays = replace(self.job_arrays, texts=texts)
        jobs = len(trace)
        self._made, self._mark_s = np.zeros(jobs), np.zeros(jobs)  # progress until the mark [s]; since then at the rate
        self._hands, self._moved, self._new = GpuHolders.none(), np.zeros(0, np.int64), set[int]()
        self._shown: Snapshot | None = None
        self._colocates = physics.shared and isinstance(physics, ColocatingPhysics) and physics.colocates
        self.scales = isinstance(physics, ScalingPhysics) and physics.scales and _any_elastic(self.job_arrays.texts)
        self._progresses = physics if isinstance(physics, ProgressPhysics) else None
        self._named: tuple[Snapshot, Snapshot] | None = None  # a snapshot, and the same with models as names
        self.size, self.resizes = self.gpus.copy(), np.zeros(jobs, np.int64)
        self._served_gpu_s, self._since_s = np.zeros(jobs), np.zeros(jobs)  # service up to a time [s]; since then size
        self._changes: list[tuple[float, int]] = []  # when speeds change with progress [s], and of which row
        self._change_s = np.full(jobs, math.nan)  # the next of each job

    @property
    def next_event_s(self) -> float:
        """As the ideal cluster, or the next change of a speed."""
        while self._changes and self._change_s[self._changes[0][1]] != self._changes[0][0]:
            heapq.heappop(self._changes)
        time_s = IdealCluster.next_event_s.fget(self)  # type: ignore[attr-defined]  # the property of the base class
        return min(time_s, self._changes[0][0]) if self._changes else float(time_s)

    @property
    def undecided(self) -> bool:
        """As the ideal cluster; where jobs have other sizes, those that run may grow though nobody waits."""
        grows = self.scales and self._ended and self._present > 0
        return grows or bool(IdealCluster.undecided.fget(self))  # type: ignore[attr-defined]

    def read(self) -> Snapshot:
        """The cluster now."""
        plain, hands = super().read(), self._holding()
        nodes = plain.nodes.with_columns(gpu_mask_used=made_read_only(hands.used(len(plain.nodes))))
        held = plain.allocations.with_columns(gpu_mask=made_read_only(hands.mask))
        jobs = self._telling(plain.jobs) if self.model.tells_progress or self.scales else plain.jobs
        jobs = jobs.with_columns(attained_gpu_s=self._service(self._seen)) if self.scales else jobs
        self._shown = replace(plain, jobs=jobs, nodes=nodes, allocations=held, topology=self.topology)
        return self._shown

    def apply(self, plan: Plan) -> Receipt:
        """As the ideal cluster, and whoever starts or has other GPUs gets its speed."""
        receipt = super().apply(plan)
        assert self._shown is not None
        changed = self._hands if self.physics.shared else self._hands.take(np.isin(self._hands.row, self._moved))
        self._pace(self._shown, changed)
        self._new.clear()
        self._moved = self._moved[:0]
        return receipt

    def _step(self, time_s: float) -> int:
        """As the ideal cluster; jobs that share go on at their new speed when one beside them ends."""
        ended = self.ended
        happened = super()._step(time_s)
        if self.physics.shared and self.ended > ended:
            self._pace(self.read(), self._holding())
        return happened + self._go_on_with_progress(time_s)

    def _go_on_with_progress(self, time_s: float) -> int:
        """Jobs whose speed changes by now with their progress go on at the new one. Returns their number."""
        rows = []
        while self._changes and self._changes[0][0] <= time_s:
            due_s, row = heapq.heappop(self._changes)
            if self._change_s[row] == due_s:
                rows.append(row)
        if rows:
            assert self._shown is not None
            self._pace(self._shown, self._hands.take(np.isin(self._hands.row, rows)), set(rows))
        return len(rows)

    def _telling(self, jobs: Jobs) -> Jobs:
        """The jobs, each with its progress as a hint. jobs: those of self._seen."""
        pairs = zip((_PROGRESS.sub("", text) for text in jobs.comment), self._done(self._seen).tolist(), strict=True)
        texts = [_with_hint(text, f"progress={done:.9f}/1") for text, done in pairs]
        if isinstance(self.physics, LossPhysics) and self.physics.tells_loss:
            losses = self.physics.losses(self._models.take(self._seen), self._done(self._seen))
            texts = [_with_loss(text, steps) for text, steps in zip(texts, losses.tolist(), strict=True)]
        return jobs.with_columns(comment=texts)

    def _done(self, rows: Int64s) -> Floats:
        """Share of the work of these rows that is done. (R,)."""
        runs_s = np.maximum(0.0, self._now_s - self._mark_s[rows]) * self.rate[rows]
        done_s = np.where(np.isnan(self.start_s[rows]), self.progress_s[rows], self._made[rows] + runs_s)
        return np.clip(done_s / np.maximum(self.job_arrays.duration_s[rows], 1e-9), 0.0, 1.0)

    def _service(self, rows: Int64s) -> Floats:
        """Attained service of these rows by the GPUs that they held [GPU s]. (R,)."""
        running = ~np.isnan(self.start_s[rows])
        now_gpu_s = np.where(running, (self._now_s - self._since_s[rows]) * self.size[rows], 0.0)
        return made_read_only(self._served_gpu_s[rows] + now_gpu_s)

    def _holding(self) -> GpuHolders:
        """What jobs hold now."""
        return self._hands.take(~np.isnan(self.start_s[self._hands.row]))

    def _hold(self, target: Assignments) -> None:
        super()._hold(target)
        before = self._holding()
        self._hands = assign_gpus(target, self._seen, before, self.capacity)
        self._moved = self._hands.moved(before)
        self._count_free()
        rows, gpus = self._hands.totals()
        if self.scales:
            self._resize(rows, gpus, before)
        elif (wrong := gpus != self.gpus[rows]).any():
            raise ConfigError(f"job {self.job_id[rows[wrong][0]]} is given {gpus[wrong][0]} GPUs, it has "
                              f"{self.gpus[rows[wrong][0]]} for good", key="placement")  # fmt: skip

    def _resize(self, rows: Int64s, gpus: Int64s, before: GpuHolders) -> None:
        """These rows hold that many GPUs from now on. (R,), (R,)."""
        differ = gpus != self.size[rows]
        self._served_gpu_s[rows] = self._service(rows)
        self._since_s[rows] = self._now_s
        self.resizes[rows[differ & np.isin(rows, before.row)]] += 1
        self.size[rows] = gpus

    def _check_sizes(self, plan: Plan, target: Assignments) -> None:
        if not self.scales:
            super()._check_sizes(plan, target)

    def _check_alone(self, target: Assignments) -> None:
        if not self._colocates:
            super()._check_alone(target)

    def _holders(self) -> tuple[Sequence[int], HeldGpus | None]:
        used, shares = super()._holders()
        return (self._used().tolist() if self._colocates or self.scales else used), shares

    def _used(self) -> Int64s:
        """GPUs held on each node, each once whoever shares it. (N,)."""
        masks = self._holding().used(len(self.capacity)).tolist()
        return np.array([mask.bit_count() for mask in masks], np.int64)

    def _count_free(self) -> None:
        """GPUs that nobody holds: those of a job that leaves are not free while another one is on them."""
        if self._colocates or self.scales:
            self.free = int(self.capacity.sum() - self._used().sum())

    def _start(self, row: int) -> None:
        self._made[row] = self.progress_s[row]
        self._mark_s[row] = self._now_s + self._cost_s(row, math.isnan(self.first_start_s[row]))
        self._new.add(row)
        self._since_s[row] = self._now_s
        super()._start(row)

    def _made_s(self, row: int, run_s: float) -> float:
        return float(self._made[row] + max(0.0, self._now_s - self._mark_s[row]) * self.rate[row])

    def _leave(self, row: int) -> float:
        self._change_s[row] = math.nan
        if self.scales:
            self._served_gpu_s[row] = self._service(np.array([row]))[0]
        run_s = super()._leave(row)
        self._count_free()
        return run_s

    def _pace(self, snapshot: Snapshot, hands: GpuHolders, news: set[int] | None = None) -> None:
        """Let these jobs go on at the speed that physics gives them on what they hold. news: rows whose speed changes
        with their progress."""
        if not len(hands.row):
            return
        held = hands.assignments(self._seen)
        snapshot = self._with_models(snapshot)
        rows, moved, news = self._seen[held.rows], set(self._moved.tolist()), news or set()
        speeds, until = self._speeds(snapshot, held, rows)
        for row, speed, share in zip(rows.tolist(), speeds.tolist(), until.tolist(), strict=True):
            if row in moved or row in news or speed != self.rate[row]:
                self._go_on(row, speed, row in moved)
                self._change_at(row, share)

    def _with_models(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot as physics sees it: the name of each job is its model."""
        if self._named is None or self._named[0] is not snapshot:
            jobs = snapshot.jobs.with_columns(name=self._models.take(self._seen))
            self._named = (snapshot, replace(snapshot, jobs=jobs))
        return self._named[1]

    def _speeds(self, snapshot: Snapshot, held: Assignments, rows: Int64s) -> tuple[Floats, Floats]:
        """Of the jobs of held, and the share of their work at which it changes, above 1 for never. (R,), (R,)."""
        if self._progresses is not None:
            speed, until = self._progresses.pace(snapshot, held, self._done(rows))
        else:
            speed, until = self.physics.speed(snapshot, held), np.full(len(rows), np.inf)
        if len(speed) != len(held.rows):
            raise InputError(f"physics gives {len(speed)} speeds for {len(held.rows)} jobs")
        wrong = ~(np.isfinite(speed) & (speed > 0))
        if wrong.any():
            job = snapshot.jobs.job_id[held.rows[wrong][0]]
            raise InputError(f"job {job}: physics gives no speed above 0 on what it holds, but {speed[wrong][0]}")
        return speed, until

    def _go_on(self, row: int, speed: float, moved: bool) -> None:
        """At this speed from now on; a job that ran before keeps its progress, and pays for other GPUs."""
        if row not in self._new:
            self._made[row] = self._made_s(row, 0.0)
            self._mark_s[row] = max(self._mark_s[row], self._now_s) + moved * self.model.resize_cost_s
        self.rate[row] = speed
        self._until(row, max(self._now_s, self._reaches_s(row, 1.0)))

    def _reaches_s(self, row: int, share: float) -> float:
        """When a job that goes on as now has done this share of its work [s]."""
        remaining_s = (share * self.job_arrays.duration_s[row] - self._made[row]) / self.rate[row]
        return float(self._mark_s[row] + remaining_s)

    def _change_at(self, row: int, share: float) -> None:
        """The speed of a job changes when it has done this share of its work."""
        if share < 1.0:
            due_s = self._change_s[row] = max(self._now_s, self._reaches_s(row, share))
            heapq.heappush(self._changes, (float(due_s), row))
        else:
            self._change_s[row] = math.nan


def _any_elastic(texts: Mapping[str, Labels]) -> bool:
    """Whether some job may have other sizes: its comment has both min_gpus and max_gpus."""
    comments = texts["comment"].names if "comment" in texts else ()
    return any(hints.min_gpus is not None and hints.max_gpus is not None for hints in map(parse_hints, comments))


def _hinted(comment: Labels | None, easy: Bools, mixed: bool) -> Labels:
    """The comments, with the hint `topo=any` where it is easy for a job, and `mixed=yes` if they all can that. (J,)."""
    texts = [""] * len(easy) if comment is None else list(comment)
    texts = [_with_hint(text, "mixed=yes") for text in texts] if mixed else texts
    pairs = zip(texts, easy.tolist(), strict=True)
    return Labels.of([_with_hint(text, "topo=any") if is_easy else text for text, is_easy in pairs])


def _with_hint(comment: str, hint: str) -> str:
    """The comment with one more hint, unless it has that one, before its own: a model's name may have spaces, after
    which none is found."""
    if re.search(rf"\s{hint.partition('=')[0]}=", comment, re.IGNORECASE):
        return comment
    own = comment.removeprefix(MARK)
    return f"{MARK} {hint}{own}" if own != comment or not comment else f"{MARK} {hint} {comment}"


def _with_loss(comment: str, steps: Sequence[float]) -> str:
    """The comment with these losses of the first step, of the step before and of now; as it is without any."""
    if math.isnan(steps[0]):
        return comment
    return _with_hint(_LOSS.sub("", comment), "loss=" + ":".join(f"{loss:.9g}" for loss in steps))


def _partitioned(stage: NodeArrays, trace: Trace, physics: Physics) -> tuple[NodeArrays, Labels]:
    """A partition for each GPU type where jobs run on some types only, and the partitions of each job. (J,).

    Raises InputError for a job that runs on no type of the cluster's, or finds too few GPUs of those it runs on.
    """
    order = np.argsort(trace.job_id, kind="stable")
    if not isinstance(physics, TypedPhysics):
        return stage, Labels.constant(PARTITION, len(order))
    nodes, type_of = stage.nodes, [only_type(text) for text in stage.nodes.gpu_types]
    models, sizes = trace.model.take(order), trace.gpus[order].tolist()
    asked = [",".join(sorted(map(_partition_of_type, physics.runs_on(model, gpus, set(type_of))))) for model, gpus in
             zip(models, sizes, strict=True)]  # fmt: skip
    names = Labels.of([_partition_of_type(each) for each in type_of])
    for job, gpus, wanted in zip(trace.job_id[order].tolist(), sizes, asked, strict=True):
        if (have := int(nodes.gpus[names.isin(wanted.split(","))].sum())) < gpus:
            raise InputError(
                f"job {job} asks for {pluralize(gpus, 'GPU')} and runs on {wanted or 'no type'} of this cluster, with "
                f"{pluralize(have, 'such GPU')}; give a larger --cluster, or leave the job out"
            )
    partitions = Partitions.build(len(names.names), {"name": list(names.names)})
    return replace(stage, nodes=nodes.with_columns(partitions=names), partitions=partitions), Labels.of(asked)


def _partition_of_type(type_: str) -> str:
    """The partition of a GPU type."""
    return type_ or PARTITION
