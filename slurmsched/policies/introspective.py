"""Jobs take turns, pairs are tried on the same GPUs, and jobs move, grow and shrink: Gandiva, by what it sees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from slurmsched.allocation.job_memory import recall
from slurmsched.allocation.job_times import active, cluster_gpus
from slurmsched.allocation.pair_trials import PairTrials
from slurmsched.allocation.size_rounds import elastic_jobs
from slurmsched.estimators.group_speeds import MURI, gpu_share, stage_table
from slurmsched.model import JobChanges, PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import hint_column, parse_hints
from slurmsched.model.ordering import arrival_s, ordered
from slurmsched.model.parameters import Period, Range, Seconds, check_choice, check_ranges
from slurmsched.model.policy_info import ANY_PARTITION, NEEDS_PREEMPTION, NO_SHARED_GPUS, RESIZE_BY_REQUEUE
from slurmsched.resources.allocated import AllocatedGpus, holding
from slurmsched.resources.eligibility import node_pools

MIB_OF_GIB = 1_024.0
_BY_JOB = ("queued_s", "slice_from_s", "more_gpus")  # in the carry
_CALM = "calm"  # in the carry: since when nobody waits
TINY_S = 1e-6
RESTART_S = 1.0  # a job that made room starts elsewhere so soon


@dataclass(frozen=True, slots=True)
class Introspective:
    """Jobs run in turns of slices. What jobs were seen to make decides who shares GPUs.

    - A job that has run for a slice goes to the end of the queue.
    - While jobs ask for more GPUs than there are, pairs are tried. The two jobs of a size that use their GPUs least are
      the first pair. It parts if both together keep less than 1 of their speeds.
    - If a job that fits on one node waits though enough GPUs are free, running jobs of one node go behind it. They
      start again elsewhere.
    - If nobody has waited for a while, jobs with hints min_gpus and max_gpus grow by the free GPUs of their node. They
      shrink at once when somebody waits.

    slice_s: run time of a turn [s].
    trial_s: run time, alone and then together, by which a pair is judged [s].
    idle_s: for so long nobody must have waited before jobs grow [s].
    grow: whether jobs grow at all.
    stages: a table of stages, or "muri": the use of GPUs where it is not measured.
    memory_gib: of a GPU; a pair needs no more. 0 = memory is no limit.
    Raises ConfigError for a parameter out of range, InputError for a table that cannot be read.
    Source: Xiao et al. (Gandiva), OSDI '18, section 4.2. Ours: trials of many pairs at once; who moves.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.SERVICE,
        "Xiao et al.: Gandiva, OSDI 2018",
        left_out=(
            "Time slices within a GPU, and suspending a job to the memory of its node: a job that is stopped is "
            "requeued. Moves to GPUs with better links: a job moves only if another one needs its place.",
            ANY_PARTITION,
        ),
        needs=(PolicyInput.PROGRESS, PolicyInput.PROFILE, PolicyInput.SIZES),
        uses=(PolicyLever.ORDER, PolicyLever.REQUEUE, PolicyLever.SIZE),
        on_slurm=(NEEDS_PREEMPTION, RESIZE_BY_REQUEUE, NO_SHARED_GPUS),
        criteria={
            "queued_s": "in this queue since {at}",
            "moves": "moves to make room for another job",
            "beside": "on GPUs of job {0+}",
            "kept": "keeps {} of its speed there",
            "given_gpus": "given {} GPUs",
        },
    )

    slice_s: Period = 360.0
    trial_s: Annotated[float, Range(1.0, 1e9)] = 360.0
    idle_s: Seconds = 600.0
    grow: bool = True
    stages: str = MURI
    memory_gib: Annotated[float, Range(0.0, 10_000.0)] = 0.0

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choice("grow", self.grow, (True, False))
        stage_table(self.stages)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, who = snapshot.jobs, active(snapshot)
        crowded = int(jobs.gpus[who].sum()) > cluster_gpus(snapshot)
        seen = PairTrials.of(snapshot)
        seen.judge(snapshot, self.trial_s)
        self._pair(snapshot, seen, who, crowded)
        queued_s, slice_from_s = self._queue(snapshot)
        guests = seen.guest > 0
        key_s, moves = np.where(guests, queued_s[seen.partner], queued_s), np.zeros(len(jobs), np.bool_)
        for row, others in _moves(snapshot, seen, who, ordered(jobs, key_s)).items():
            moves[others], key_s[others] = True, np.maximum(key_s[others], key_s[row])
        calm_s = self._calm_s(snapshot, crowded)
        more = self._more(snapshot, seen, crowded, calm_s)
        carry = seen.carry(snapshot, dict(zip(_BY_JOB, (queued_s, slice_from_s, more), strict=True)))
        why = {
            "queued_s": key_s, "moves": moves, "beside": seen.hosts(snapshot),
            "kept": np.round(seen.kept(self.trial_s), 2), "given_gpus": jobs.gpus + more.astype(np.int64),
        }  # fmt: skip
        return Ranking(ordered(jobs, key_s, moves, guests), why=why, carry=carry | {_CALM: {"since_s": calm_s}},
                       changes=self._changes(snapshot, seen, more))  # fmt: skip

    def _changes(self, snapshot: Snapshot, seen: PairTrials, more: Floats) -> JobChanges:
        elastic = elastic_jobs(snapshot) if self.grow else np.zeros(len(more), np.bool_)
        gpus = np.where(elastic, snapshot.jobs.gpus + more, 0).astype(np.int32)
        return JobChanges(gpus=gpus if elastic.any() else None, beside=seen.hosts(snapshot))

    # Turns.

    def _queue(self, snapshot: Snapshot) -> tuple[Floats, Floats]:
        """When each job came to the end of the queue [Unix s], and its run time then. (N,), (N,)."""
        jobs = snapshot.jobs
        known = recall(jobs, snapshot.carry, _BY_JOB)
        queued_s = np.where(np.isnan(known["queued_s"]), arrival_s(jobs), known["queued_s"])
        from_s = np.where(np.isnan(known["slice_from_s"]), jobs.executed_s, known["slice_from_s"])
        over = jobs.executed_s - from_s >= self.slice_s - TINY_S
        return np.where(over, snapshot.now_s, queued_s), np.where(over, jobs.executed_s, from_s)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The end of a slice or a trial while somebody waits, or when jobs may grow [Unix s]; infinity if never."""
        who, jobs, now_s = active(snapshot), snapshot.jobs, snapshot.now_s
        if (ranking.why["moves"] & ~running).any():
            return now_s + RESTART_S
        if (who & ~running).any() or (ranking.why["beside"] >= 0).any():
            known = recall(jobs, ranking.carry, ("slice_from_s", "alone_s", "shared_s", "partner"))
            alone = known["partner"] < 0
            trial_s = self.trial_s - np.where(alone, known["alone_s"], known["shared_s"])
            to_come_s = np.concatenate([self.slice_s - (jobs.executed_s - known["slice_from_s"]), trial_s])
            counts = np.tile(running & who, 2) & (to_come_s > TINY_S)
            return now_s + float(np.min(to_come_s[counts], initial=math.inf))
        grows_s = float(ranking.carry[_CALM]["since_s"]) + self.idle_s
        return grows_s if self.grow and elastic_jobs(snapshot).any() and grows_s > now_s else math.inf

    # Pairs.

    def _pair(self, snapshot: Snapshot, seen: PairTrials, who: Bools, crowded: bool) -> None:
        """Part all pairs where there are GPUs for all, else try pairs until there are. who: (N,), active jobs."""
        if not crowded:
            for row in np.flatnonzero(seen.guest > 0).tolist():
                seen.part(row)
            return
        jobs, runs, memory = snapshot.jobs, holding(snapshot.jobs), self._memory(snapshot)
        able = who & (seen.profiled(self.trial_s) > 0) & (seen.partner < 0) & (hint_column(jobs, "share") != 0)
        too_many = int(jobs.gpus[who & (seen.guest == 0)].sum()) - cluster_gpus(snapshot)
        of_size: dict[int, list[int]] = {}
        for row in ordered(jobs, self._use(snapshot)).tolist():
            if able[row]:
                of_size.setdefault(int(jobs.gpus[row]), []).append(row)
        for gpus, rows in sorted(of_size.items()):
            while rows and too_many > 0:
                guest = rows.pop(0)
                hosts = (row for row in rows if runs[row] and memory[row] + memory[guest] <= self.memory_gib
                         and not seen.was_refused(snapshot, guest, row))  # fmt: skip
                if (host := next(hosts, -1)) >= 0:
                    rows.remove(host)
                    seen.pair(guest, host)
                    too_many -= gpus

    def _use(self, snapshot: Snapshot) -> Floats:
        """Part of the time that each job uses its GPUs: measured, else by the table of stages. (N,)."""
        jobs = snapshot.jobs
        table = [gpu_share(self.stages, parse_hints(comment).model or "", gpus)
                 for comment, gpus in zip(jobs.comment, jobs.gpus.tolist(), strict=True)]  # fmt: skip
        return np.where(np.isfinite(jobs.gpu_use), jobs.gpu_use, np.array(table, np.float64))

    def _memory(self, snapshot: Snapshot) -> Floats:
        """Memory of a GPU that each job needs [GiB], infinity unknown; 0 if memory is no limit. (N,)."""
        jobs = snapshot.jobs
        needed_gib = np.fmax(hint_column(jobs, "gpu_mem"), jobs.gpu_memory_mib / MIB_OF_GIB)
        return np.nan_to_num(needed_gib, nan=math.inf) if self.memory_gib else np.zeros(len(jobs))

    # Sizes.

    def _calm_s(self, snapshot: Snapshot, crowded: bool) -> float:
        """Since when nobody waits for GPUs [Unix s]: now if somebody does, or came since the last look."""
        known, carried = recall(snapshot.jobs, snapshot.carry, _BY_JOB)["queued_s"], snapshot.carry.get(_CALM)
        calm = isinstance(carried, dict) and not crowded and not np.isnan(known[active(snapshot)]).any()
        waits = (active(snapshot) & ~holding(snapshot.jobs)).any()
        return float(carried["since_s"]) if calm and not waits and carried is not None else snapshot.now_s

    def _more(self, snapshot: Snapshot, seen: PairTrials, crowded: bool, calm_s: float) -> Floats:
        """GPUs of each job above what it asks for. (N,)."""
        jobs, most = snapshot.jobs, hint_column(snapshot.jobs, "max_gpus")
        more = np.nan_to_num(recall(jobs, snapshot.carry, _BY_JOB)["more_gpus"])
        more[~(elastic_jobs(snapshot) & holding(jobs))] = 0.0
        if crowded or not self.grow or (active(snapshot) & ~holding(jobs)).any():
            return np.zeros(len(jobs))
        if snapshot.now_s < calm_s + self.idle_s - TINY_S:
            return more
        allocated, nodes = AllocatedGpus.of(snapshot), snapshot.nodes
        free = np.where(nodes.closed, 0, nodes.gpus - nodes.gpus_used)
        grows = elastic_jobs(snapshot) & holding(jobs) & (allocated.count == 1)
        for row in ordered(jobs)[grows[ordered(jobs)]].tolist():
            node = int(allocated.node[allocated.first[row]])
            step = max(min(int(free[node]), int(most[row] - jobs.gpus[row] - more[row])), 0)
            more[row] += step
            free[node] -= step
        return more


def _moves(snapshot: Snapshot, seen: PairTrials, who: Bools, order: Int64s) -> dict[int, list[int]]:
    """The first waiting job that no node has room for though enough GPUs are free, and the jobs that make room.

    Of the nodes where running jobs can make room, and can start on free GPUs of others, the one with the fewest GPUs to
    move. order: rows, the most urgent first.
    """
    jobs, nodes = snapshot.jobs, snapshot.nodes
    free = np.where(nodes.closed, 0, np.maximum(nodes.gpus - nodes.gpus_used, 0)).astype(np.int64)
    waits = who & ~holding(jobs) & (jobs.nodes <= 1) & (seen.partner < 0)
    pool, usable = node_pools(snapshot)
    for row in order[waits[order]].tolist():
        here, need = usable[pool[row]], int(jobs.gpus[row])
        if free[here].max(initial=0) >= need or free[here].sum() < need:
            continue
        rows_on, found = _movable(snapshot, seen), list[tuple[int, int, list[int]]]()
        for node in np.flatnonzero(here & (nodes.gpus >= need)).tolist():
            if chosen := _moved_from(snapshot, rows_on.get(node, []), node, need - int(free[node]), free):
                found.append((int(jobs.gpus[chosen].sum()), node, chosen))
        return {row: min(found)[2]} if found else {}
    return {}


def _movable(snapshot: Snapshot, seen: PairTrials) -> dict[int, list[int]]:
    """Rows of the jobs of each node that may be stopped, run nowhere else and share with nobody; the largest first."""
    allocated, jobs, found = AllocatedGpus.of(snapshot), snapshot.jobs, dict[int, list[int]]()
    may = (allocated.count == 1) & (hint_column(jobs, "preempt") != 0) & (seen.partner < 0)
    for row in ordered(jobs, -jobs.gpus.astype(np.int64)).tolist():
        if may[row]:
            found.setdefault(int(allocated.node[allocated.first[row]]), []).append(row)
    return found


def _moved_from(snapshot: Snapshot, rows: list[int], node: int, need: int, free: Int64s) -> list[int]:
    """The jobs of a node that have so many GPUs together and fit on free GPUs of others; none if there are none.

    The largest that is not above what is still needed goes first, else the smallest. rows: of _movable.
    """
    room, chosen, gpus = free.copy(), list[int](), snapshot.jobs.gpus
    room[node] = 0
    while need > 0 and rows:
        row = next((one for one in rows if gpus[one] <= need), rows[-1])
        rows = [one for one in rows if one != row]
        fits = np.flatnonzero(room >= gpus[row])
        if len(fits):
            room[fits[room[fits].argmin()]] -= gpus[row]
            chosen.append(row)
            need -= int(gpus[row])
    return chosen if need <= 0 else []
