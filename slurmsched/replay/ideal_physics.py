"""An ideal cluster whose jobs run as fast as physics says, on GPUs that it tells apart."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from slurmsched.errors import ConfigError, InputError
from slurmsched.model import Jobs, Labels, Partitions, Plan, Receipt, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s, sealed
from slurmsched.model.hints import MARK
from slurmsched.model.plan import Assignments
from slurmsched.protocols import Physics, TypedPhysics
from slurmsched.replay.gpu_hands import Hands, deal
from slurmsched.replay.ideal import End, IdealCluster
from slurmsched.replay.ideal_model import IdealModel
from slurmsched.replay.ideal_view import PARTITION, Shares, Stage
from slurmsched.replay.physics.costs import named
from slurmsched.replay.traces import Trace
from slurmsched.words import some

if TYPE_CHECKING:
    from slurmsched.replay.hardware import Hardware


_PROGRESS = re.compile(r"\sprogress=\S*", re.IGNORECASE)


class PhysicsCluster(IdealCluster):
    """The ideal cluster on nodes of single GPUs. What is left of a job is kept in seconds at the recorded speed.

    hardware: nodes, GPU types, wiring; snapshots show them, and who holds which GPUs. physics: says how fast jobs are
    whenever they start or change, or, if they share, whenever one ends too; it sees a job's model as its name. Jobs of
    models that it calls insensitive bear the hint `topo=any`; all of them `mixed=yes`, where it knows how fast they are
    on several GPU types at once (`mixed_efficiency`), but for those that say otherwise. The costs of changes are the
    cluster model's.
    Where it knows how fast jobs are on the same GPUs (`colocates`), a plan may give two jobs the same.
    Where the physics tells on which GPU types a job runs, each type is a partition and the job asks for those.
    Raises InputError for a job that could never start, ConfigError for a model with quirks of single simulators.
    """

    def __init__(
        self, trace: Trace, hardware: Hardware, physics: Physics, model: IdealModel | None = None, *, seed: int = 0
    ) -> None:
        super().__init__(trace, hardware.nodes.gpus.tolist(), model, seed=seed)
        if self.model.quirky:
            raise ConfigError("physics goes with no quirk of a single simulator; leave one of them out", key="physics")
        self.physics, self.topology = physics, hardware.topology
        self.stage, partition = _partitioned(replace(self.stage, nodes=hardware.nodes), trace, physics)
        self._pile = False  # who goes where is a question on a single node too
        self._models = trace.model.take(np.argsort(trace.job_id, kind="stable"))
        easy = named(self._models, getattr(physics, "insensitive", ()))
        texts = dict(self.cast.texts) | {
            "comment": _hinted(self.cast.texts.get("comment"), easy, bool(getattr(physics, "mixed_efficiency", 0.0))),
            "partition": partition,
        }
        self.cast = replace(self.cast, texts=texts)
        jobs = len(trace)
        self._made, self._mark_s = np.zeros(jobs), np.zeros(jobs)  # progress until the mark [s]; since then at the rate
        self._due_s = np.full(jobs, math.nan)  # end of this run, as it goes now
        self._hands, self._moved, self._new = Hands.none(), np.zeros(0, np.int64), set[int]()
        self._shown: Snapshot | None = None
        self._colocates = physics.shared and bool(getattr(physics, "colocates", False))

    def read(self) -> Snapshot:
        """The cluster now."""
        plain, hands = super().read(), self._holding()
        nodes = plain.nodes.with_columns(gpu_mask_used=sealed(hands.used(len(plain.nodes))))
        held = plain.allocations.with_columns(gpu_mask=sealed(hands.mask))
        jobs = self._telling(plain.jobs) if self.model.tells_progress else plain.jobs
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

    def advance(self, until_s: float) -> int:
        """As the ideal cluster; jobs that share go on at their new speed when one beside them ends."""
        if not self.physics.shared:
            return super().advance(until_s)
        happened = 0
        while (time_s := self.next_event_s) <= until_s:
            ended = self.ended
            happened += super().advance(time_s)
            if self.ended > ended:
                self._pace(self.read(), self._holding())
        return happened + super().advance(until_s)

    def _telling(self, jobs: Jobs) -> Jobs:
        """The jobs, each with its progress as a hint. jobs: those of self._seen."""
        rows = self._seen
        runs_s = np.maximum(0.0, self._now_s - self._mark_s[rows]) * self.rate[rows]
        done_s = np.where(np.isnan(self.start_s[rows]), self.progress_s[rows], self._made[rows] + runs_s)
        share = np.clip(done_s / np.maximum(self.cast.duration_s[rows], 1e-9), 0.0, 1.0).tolist()
        pairs = zip((_PROGRESS.sub("", text) for text in jobs.comment), share, strict=True)
        return jobs.with_columns(comment=[_with_hint(text, f"progress={done:.9f}/1") for text, done in pairs])

    def _holding(self) -> Hands:
        """What jobs hold now."""
        return self._hands.take(~np.isnan(self.start_s[self._hands.row]))

    def _hold(self, target: Assignments) -> None:
        super()._hold(target)
        before = self._holding()
        self._hands = deal(target, self._seen, before, self.capacity)
        self._moved = self._hands.moved(before)
        self._count_free()
        rows, gpus = self._hands.totals()
        if (wrong := gpus != self.gpus[rows]).any():
            raise ConfigError(f"job {self.job_id[rows[wrong][0]]} is given {gpus[wrong][0]} GPUs, it has "
                              f"{self.gpus[rows[wrong][0]]} for good", key="placement")  # fmt: skip

    def _check_alone(self, target: Assignments) -> None:
        if not self._colocates:
            super()._check_alone(target)

    def _holders(self) -> tuple[Sequence[int], Shares | None]:
        used, shares = super()._holders()
        return (self._used().tolist() if self._colocates else used), shares

    def _used(self) -> Int64s:
        """GPUs held on each node, each once whoever shares it. (N,)."""
        masks = self._holding().used(len(self.capacity)).tolist()
        return np.array([mask.bit_count() for mask in masks], np.int64)

    def _count_free(self) -> None:
        """GPUs that nobody holds: those of a job that leaves are not free while another one is on them."""
        if self._colocates:
            self.free = int(self.capacity.sum() - self._used().sum())

    def _start(self, row: int) -> None:
        self._made[row] = self.progress_s[row]
        self._mark_s[row] = self._now_s + self._cost_s(row, math.isnan(self.first_start_s[row]))
        self._new.add(row)
        super()._start(row)

    def _made_s(self, row: int, run_s: float) -> float:
        return float(self._made[row] + max(0.0, self._now_s - self._mark_s[row]) * self.rate[row])

    def _leave(self, row: int) -> float:
        self._due_s[row] = math.nan
        run_s = super()._leave(row)
        self._count_free()
        return run_s

    def _until(self, row: int, end_s: float) -> None:
        if end_s != self._due_s[row]:
            self._due_s[row] = end_s
            super()._until(row, end_s)

    def _void(self, event: End) -> bool:
        return super()._void(event) or event.time_s != self._due_s[event.row]

    def _pace(self, snapshot: Snapshot, hands: Hands) -> None:
        """Let these jobs go on at the speed that physics gives them on what they hold."""
        if not len(hands.row):
            return
        held = hands.assignments(self._seen)
        jobs = snapshot.jobs.with_columns(name=self._models.take(self._seen))
        snapshot = replace(snapshot, jobs=jobs)
        rows, moved = self._seen[held.rows], set(self._moved.tolist())
        for row, speed in zip(rows.tolist(), self._speeds(snapshot, held).tolist(), strict=True):
            if row in moved or speed != self.rate[row]:
                self._go_on(row, speed, row in moved)

    def _speeds(self, snapshot: Snapshot, held: Assignments) -> Floats:
        speed = self.physics.speed(snapshot, held)
        if len(speed) != len(held.rows):
            raise InputError(f"physics gives {len(speed)} speeds for {len(held.rows)} jobs")
        wrong = ~(np.isfinite(speed) & (speed > 0))
        if wrong.any():
            job = snapshot.jobs.job_id[held.rows[wrong][0]]
            raise InputError(f"job {job}: physics gives no speed above 0 on what it holds, but {speed[wrong][0]}")
        return speed

    def _go_on(self, row: int, speed: float, moved: bool) -> None:
        """At this speed from now on; a job that ran before keeps its progress, and pays for other GPUs."""
        if row not in self._new:
            self._made[row] = self._made_s(row, 0.0)
            self._mark_s[row] = max(self._mark_s[row], self._now_s) + moved * self.model.resize_cost_s
        self.rate[row] = speed
        left_s = (self.cast.duration_s[row] - self._made[row]) / speed
        self._until(row, max(self._now_s, float(self._mark_s[row] + left_s)))


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


def _partitioned(stage: Stage, trace: Trace, physics: Physics) -> tuple[Stage, Labels]:
    """A partition for each GPU type where jobs run on some types only, and the partitions of each job. (J,).

    Raises InputError for a job that runs on no type of the cluster's, or finds too few GPUs of those it runs on.
    """
    order = np.argsort(trace.job_id, kind="stable")
    if not isinstance(physics, TypedPhysics):
        return stage, Labels.constant(PARTITION, len(order))
    nodes, type_of = stage.nodes, [_type(text) for text in stage.nodes.gpu_types]
    models, sizes = trace.model.take(order), trace.gpus[order].tolist()
    asked = [",".join(sorted(map(_named, physics.runs_on(model, gpus, set(type_of))))) for model, gpus in
             zip(models, sizes, strict=True)]  # fmt: skip
    names = Labels.of([_named(each) for each in type_of])
    for job, gpus, wanted in zip(trace.job_id[order].tolist(), sizes, asked, strict=True):
        if (have := int(nodes.gpus[names.isin(wanted.split(","))].sum())) < gpus:
            raise InputError(
                f"job {job} asks for {some(gpus, 'GPU')} and runs on {wanted or 'no type'} of this cluster, with "
                f"{some(have, 'such GPU')}; give a larger --cluster, or leave the job out"
            )
    partitions = Partitions.build(len(names.names), {"name": list(names.names)})
    return replace(stage, nodes=nodes.with_columns(partitions=names), partitions=partitions), Labels.of(asked)


def _type(gpu_types: str) -> str:
    """The type of a node's GPUs in normal form, "" if it is not told."""
    return gpu_types.split(":")[1] if gpu_types.count(":") == 2 else ""


def _named(type_: str) -> str:
    """The partition of a GPU type."""
    return type_ or PARTITION
