"""Limits of QOS, accounts and users, and licences: how much of each is left, and which of them each job uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.model.columns import Bools, Floats, Int64s, Labels
from slurmsched.model.slurm_text import license_counts
from slurmsched.model.trace import Trace
from slurmsched.sim.cluster_layout import ClusterLayout, LimitSpec
from slurmsched.sim.slurmctld.association_usage import ROOT, AssociationTree, decay_per_s
from slurmsched.sim.slurmctld.job_demands import SubmittedRequests
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings

NONE = -1
UNTAKEN = "group wall_s"  # each job that starts is held against it alone
TYPED = "gpus:"  # before a GPU type: what a limit on GPUs of this type limits
Key = tuple[str, ...]  # "qos" or "account", which limit, of whom
Wish = tuple[Key, float, str, bool]  # its limit, what a job uses of it, whether the job is held back by it
# What is limited -> field on each user, field on the whole group; "" = there is none.
RUNNING: Mapping[str, tuple[str, str]] = {
    "jobs": ("max_jobs_per_user", "group_jobs"), "gpus": ("max_gpus_per_user", "group_gpus"),
    "gpu_s": ("", "group_gpu_s"), "wall_s": ("", "group_wall_s"), "run_gpu_s": ("", "group_run_gpu_s"),
}  # fmt: skip
# What is limited -> field of a QOS on each account whose jobs it has.
PER_ACCOUNT: Mapping[str, str] = {"jobs": "max_jobs_per_account", "gpus": "max_gpus_per_account"}
SUBMITTED: Mapping[str, tuple[str, str]] = {"jobs": ("max_submit_per_user", "group_submit")}
# A group's or each user's limit on what -> why a job waits that is over it, as squeue has it.
WHY = {
    "jobs": "MaxJobsLimit", "gpus": "MaxGRESPerUser", "group jobs": "GrpJobsLimit", "group gpus": "GrpGRES",
    "group gpu_s": "GrpGRESMinutes", "group wall_s": "GrpWallLimit", "group run_gpu_s": "GrpGRESRunMinutes",
    "tasks": "JobArrayTaskLimit", "account jobs": "MaxJobsPerAccount", "account gpus": "MaxGRESPerAccount",
    "licenses": "Licenses",
}  # fmt: skip


class LimitTable:
    """Every limit that some job falls under: of its partition's QOS and its own, and of its associations.

    Of each kind the first of the two QOS that has it holds the job back, else those of its associations do: on each
    user the nearest one's above it, of groups those of every level up to root. What runs is counted in all of them.
    keys: (L,) whose limit of what. room: (L,) what is left of each. why: (L,) what squeue says of who is over it.
    tried: (J, K) of_job as a pass of a scheduler has it, where a start takes nothing of what is UNTAKEN: L + row.
    of_job: (J, K) rows of room that hold the job back, -2 - row of those in which it only counts, NONE = none. amount:
    (J, K) what the job uses of it.
    throttle: (J,) the limit that is the number of tasks of its array which may run at once, NONE = none.
    amounts: of what a kind is (jobs, gpus, ...), what each job uses (J,).
    kinds: RUNNING, used from a job's start to its end, or SUBMITTED, from its submission to its end.
    Source: Slurm's src/slurmctld/acct_policy.c, and its "resource limits" page for the precedence.
    """

    # Over 30 lines: each array is made of the one before; parts would pass all of them on.
    def __init__(
        self,
        layout: ClusterLayout,
        requests: SubmittedRequests,
        amounts: Mapping[str, Floats],
        tree: AssociationTree,
        kinds: Mapping[str, tuple[str, str]],
    ) -> None:
        groups, place = groups_of(layout, requests, tree)
        limit_groups = [list(_limit_groups(tree, row, ordered, kinds)) for row, ordered in groups]
        if kinds is RUNNING:
            limit_groups = [
                [*each, *_typed_groups(tree, *group)] for each, group in zip(limit_groups, groups, strict=True)
            ]
        room: dict[Key, float] = {key: max(much, 0.0) for each in limit_groups for key, much, _, _ in each}
        rows = {key: row for row, key in enumerate(room)}
        shape, whats = (max(len(limit_groups), 1), max(map(len, limit_groups), default=0) or 1), list(kinds)
        whats += sorted({what for each in limit_groups for _, _, what, _ in each} - set(kinds))
        of_group, of_what = np.full(shape, NONE, np.int64), np.zeros(shape, np.int64)
        for at, each in enumerate(limit_groups):
            of_group[at, : len(each)] = [rows[key] if holds else -2 - rows[key] for key, _, _, holds in each]
            of_what[at, : len(each)] = [whats.index(what) for _, _, what, _ in each]
        self.keys = tuple(rows)
        self.why = tuple(WHY[key[1]] for key in rows)
        self.room: Floats = np.array(list(room.values()), np.float64)
        self.of_job: Int64s = of_group[place]
        untaken = np.array([*(key[1] == UNTAKEN for key in rows), False], np.bool_)
        looked_at = np.where(of_group >= 0, of_group + len(rows), NONE)
        counted = np.where(of_group < NONE, -2 - of_group, of_group)
        self.tried: Int64s = np.where(untaken[counted], looked_at, of_group)[place]
        used = np.stack([amounts[what] if what in kinds else _of_type(what, amounts, requests) for what in whats])
        self.amount: Floats = used[of_what[place], np.arange(len(place))[:, None]]
        self.throttle: Int64s = np.full(len(place), NONE, np.int64)
        if kinds is RUNNING and requests.array_limit.any():
            self._throttle(requests)
        if kinds is RUNNING and layout.licenses and requests.licenses.any_text:
            self._license(requests.licenses, layout.licenses)

    def _throttle(self, requests: SubmittedRequests) -> None:
        """A limit more for each array that may run only some of its tasks at once."""
        limited = (requests.array_id > 0) & (requests.array_limit > 0)
        arrays, first, place = np.unique(requests.array_id[limited], return_index=True, return_inverse=True)
        self.throttle[limited] = len(self.keys) + place
        tasks = (self.throttle != NONE).astype(np.float64)
        keys = [("array", "tasks", str(array)) for array in arrays.tolist()]
        self._add(keys, requests.array_limit[limited][first], self.throttle[:, None], tasks[:, None])

    def _license(self, asked: Labels, have: Mapping[str, int]) -> None:
        """A limit more for each licence: what jobs that run have of it. One that the cluster lacks does not count.

        Source: Slurm's src/slurmctld/licenses.c; a job that finds too few is passed over, and blocks nobody.
        """
        wanted = [license_counts(text) for text in asked.names]
        amount = np.array([[counts.get(name, 0) for name in have] for counts in wanted], np.float64)[asked.codes]
        rows = np.where(amount > 0, len(self.keys) + np.arange(len(have)), NONE)
        self._add([("cluster", "licenses", name) for name in have], np.array(list(have.values())), rows, amount)

    def _add(self, keys: Sequence[Key], room: Floats | Int64s, rows: Int64s, amount: Floats) -> None:
        """Limits more, which hold back whom they count. room: (M,) of each. rows: (J, C) as of_job has them.
        amount: (J, C)."""
        moved = np.where(self.tried >= len(self.keys), self.tried + len(keys), self.tried)  # L + row: L grows
        self.keys += tuple(keys)
        self.why += tuple(WHY[key[1]] for key in keys)
        self.room = np.concatenate([self.room, room.astype(np.float64)])
        self.of_job, self.tried = (np.column_stack([before, rows]) for before in (self.of_job, moved))
        self.amount = np.column_stack([self.amount, amount])

    def within(self, rows: Int64s) -> Bools:
        """Which of the jobs a pass of a scheduler finds room for in all their limits. (R,)."""
        if not len(self.room):
            return np.ones(len(rows), np.bool_)
        tried = self.tried[rows]
        found: Bools = np.all((tried < 0) | (self.room[tried % len(self.room)] >= self.amount[rows]), axis=1)
        return found

    def beyond(self) -> Int64s:
        """Row of a limit that each job is over by itself, so that it would wait for ever, NONE of none. (J,)."""
        over = np.append(self.room, np.inf)[np.maximum(self.of_job, NONE)] < self.amount
        return np.where(over, self.of_job, NONE).max(axis=1, initial=NONE)

    def counted(self, row: int) -> list[int]:
        """Limit of each column of the job, whether it holds it back or not; NONE = none. (K,)."""
        return [-2 - limit if limit < NONE else limit for limit in self.of_job[row].tolist()]

    def use(self, row: int, sign: int = 1) -> None:
        """The job takes (1) or gives back (-1)."""
        for limit, amount in zip(self.counted(row), self.amount[row].tolist(), strict=True):
            if limit != NONE:
                self.room[limit] -= sign * amount

    def holds(self, rows: Int64s) -> bool:
        """Whether there is room for all these jobs, which have the same limits."""
        return all(
            limit <= NONE or self.room[limit] >= self.amount[rows, column].sum()
            for column, limit in enumerate(self.of_job[rows[0]].tolist())
        )


def groups_of(
    layout: ClusterLayout, requests: SubmittedRequests, tree: AssociationTree
) -> tuple[list[tuple[int, tuple[LimitSpec, ...]]], Int64s]:
    """Every association with every one or two QOS that some job falls under, the QOS that counts first before the
    other; and which of them each job has. (J,).
    """
    known, names, parts = {each.name: each for each in layout.qos}, requests.qos.names, len(layout.partitions)
    codes = (tree.of_job * max(len(names), 1) + requests.qos.codes) * parts + layout.partition_rows(requests.partition)
    group, place = np.unique(codes, return_inverse=True)
    found = []
    for code in group.tolist():
        above, part = divmod(code, parts)
        row, own = divmod(above, max(len(names), 1))
        both = [known.get(name, LimitSpec(name)) for name in (layout.partitions[part].qos, names[own])]
        found.append((row, _in_order(*both)))
    return found, place.reshape(-1).astype(np.int64)


def _in_order(partition: LimitSpec, own: LimitSpec) -> tuple[LimitSpec, ...]:
    """QOS of a partition, if it has one, and of a job, the one that counts first first."""
    if not partition.name or partition.name == own.name:
        return (own,)
    return (own, partition) if own.over_part_qos else (partition, own)


def _limit_groups(
    tree: AssociationTree, row: int, ordered: Sequence[LimitSpec], kinds: Mapping[str, tuple[str, str]]
) -> Iterator[Wish]:
    """The limits of a job of this association and these QOS."""
    leaf = tree.limits[row]
    for what, (each, whole) in kinds.items():
        free = True  # whether nothing so far holds the job back
        for qos in ordered if each else ():
            if much := getattr(qos, each):
                yield ("qos", what, qos.name, leaf.user), much, what, free
                free = False
        if each and (much := tree.nearest(row, each)):
            yield ("account", what, leaf.name, leaf.user), much, what, free
        free = True
        for qos in ordered if kinds is RUNNING and what in PER_ACCOUNT else ():
            if much := getattr(qos, PER_ACCOUNT[what]):
                yield ("qos", f"account {what}", qos.name, leaf.name), much, what, free
                free = False
        free = True
        for qos in ordered:
            if much := getattr(qos, whole):
                yield ("qos", f"group {what}", qos.name), much, what, free
                free = False
        for above in tree.chain(row):
            limits = tree.limits[above]
            if much := getattr(limits, whole):
                yield ("account", f"group {what}", limits.name, limits.user), much, what, free


def _typed_groups(tree: AssociationTree, row: int, ordered: Sequence[LimitSpec]) -> Iterator[Wish]:
    """The limits on GPUs of one type of a job of this association and these QOS."""
    leaf, held = tree.limits[row], set[tuple[str, str]]()
    whose = {"MaxTRESPU": ("gpus", leaf.user), "MaxTRESPA": ("account gpus", leaf.name), "GrpTRES": ("group gpus",)}
    for qos in ordered:
        for column, gpu_type, most in qos.typed_gpus:
            name, *of = whose[column]
            yield ("qos", name, qos.name, *of, gpu_type), float(most), TYPED + gpu_type, (column, gpu_type) not in held
        held |= {(column, gpu_type) for column, gpu_type, _ in qos.typed_gpus}
    for above in tree.chain(row):
        limits = tree.limits[above]
        for column, gpu_type, most in limits.typed_gpus:
            key = ("account", "group gpus", limits.name, limits.user, gpu_type)
            yield key, float(most), TYPED + gpu_type, (column, gpu_type) not in held


def _of_type(what: str, amounts: Mapping[str, Floats], requests: SubmittedRequests) -> Floats:
    """GPUs of the jobs that ask for this type, 0 of the others. (J,)."""
    return np.where(requests.gpu_type.isin([what.removeprefix(TYPED)]), amounts["gpus"], 0.0)


# Limits on what was used.

LEAST = 1e-6  # what a job must find of a limit that only holds back once it is used up
KINDS = ("group gpu_s", "group wall_s", "group run_gpu_s")
GPU_S, WALL_S, RUN_GPU_S = range(3)


def amounts(trace: Trace, safe: bool) -> dict[str, Floats]:
    """What each job uses of each kind of RUNNING. (J,).

    safe: AccountingStorageEnforce=safe, a job must find what it may use in its time limit; one whose limit is not known
    is held against none.
    """
    ones, gpus = np.ones(len(trace)), trace.gpus.astype(np.float64)
    limit_s = np.where(_bounded(trace), trace.time_limit_s, 0.0)
    return {"jobs": ones, "gpus": gpus, "wall_s": np.maximum(limit_s * safe, LEAST),
            "gpu_s": np.maximum(gpus * limit_s * safe, LEAST), "run_gpu_s": gpus * limit_s}  # fmt: skip


def _bounded(trace: Trace) -> Bools:
    """Which jobs have a time limit that is known. (J,)."""
    bounded: Bools = trace.limit_known & np.isfinite(trace.time_limit_s)
    return bounded


def whole_minutes(used: Any) -> Any:
    """Seconds, or GPU seconds, of the whole minutes in which slurmctld compares them. A number or an array."""
    return np.floor(used / 60.0 + 1e-9) * 60.0


class UsageLimits:
    """What was used under each limit of these kinds, counted every calc_period_s and at the end of each run.

    used: (L,) of each limit of the table, faded as usage is [GPU s, or s]; 0 of other kinds. What is left stands in the
    table, and what running jobs may still use is taken from it beforehand: of GrpTRESMins if safe, of GrpTRESRunMins
    always.
    Source: Slurm's priority/multifactor (usage) and acct_policy.c.
    """

    def __init__(
        self,
        limits: LimitTable,
        trace: Trace,
        layout: ClusterLayout,
        requests: SubmittedRequests,
        model: SlurmctldSettings,
    ) -> None:
        self.limits, self.model = limits, model
        self._kind = [KINDS.index(key[1]) if key[1] in KINDS else NONE for key in limits.keys]
        self.counts = any(kind != NONE for kind in self._kind)
        self.used = np.zeros(len(limits.keys))
        factor = {each.name: each.usage_factor for each in layout.qos}
        keeps = {each.name for each in layout.qos if each.no_decay}
        self._fades: Bools = np.array([key[0] != "qos" or key[2] not in keeps for key in limits.keys], np.bool_)
        self._ends: Bools = np.array([
            not model.safe_limits and key[1] in KINDS[:RUN_GPU_S] and key[2:] != (ROOT, "") for key in limits.keys
        ], np.bool_)  # fmt: skip
        self._factor = requests.qos.map(lambda name: factor.get(name, 1.0), np.float64)
        self._gpus, self._ahead = trace.gpus, _bounded(trace)
        self._limit = np.array(limits.room)
        self._start_s: dict[int, float] = {}
        self.counted_s = float(model.whole_ticks(0.0))

    def started(self, row: int, now_s: float) -> None:
        """The job of this row runs; the table has taken its amounts. What it may use of GrpWall is not set aside."""
        if self.counts and any(True for _ in self._of(row)):
            self._start_s[row] = float(self.model.whole_ticks(now_s))
            for limit, kind, amount in self._of(row):
                self.limits.room[limit] += amount if kind == WALL_S else 0.0

    def stopped(self, row: int, now_s: float) -> None:
        """Its run is over; the table gives its amounts back beside this."""
        if row in self._start_s:
            start_s, now_s = self._start_s.pop(row), float(self.model.whole_ticks(now_s))
            self._use(row, start_s, now_s)
            for limit, kind, amount in self._of(row):
                self.limits.room[limit] -= amount if kind == WALL_S else self._moved(row, kind, now_s - start_s)

    def count(self, now_s: float, forget: bool) -> None:
        """All usage fades, or is forgotten, and what ran since the last time is added."""
        if not self.counts:
            return
        now_s = float(self.model.whole_ticks(now_s))
        before, fade = self.used.copy(), decay_per_s(self.model) ** max(now_s - self.counted_s, 0.0)
        self.used = self.used * 0.0 if forget else np.where(self._fades, self.used * fade, self.used)
        self.limits.room += whole_minutes(before) - whole_minutes(self.used)
        for row, start_s in self._start_s.items():
            self._use(row, start_s, now_s)
        self.counted_s = now_s

    def gone(self) -> list[int]:
        """Rows of running jobs that have used up a limit, by what is counted: they are to end."""
        gone: Bools = self._ends & (whole_minutes(self.used) >= self._limit)
        return [row for row in sorted(self._start_s) if gone.any() and self._is_gone(row, gone)]

    def never(self, rows: Int64s) -> list[int]:
        """Those of the rows that wait for what no time and no running job will give back. While nothing runs."""
        comes_back = self._fades & (self.model.decay_half_life_s > 0)
        if self.model.usage_reset not in ("none", "now"):
            comes_back[:] = True
        return [row for row in rows.tolist() if any(
            limit >= 0 and self._kind[limit] in (GPU_S, WALL_S) and not comes_back[limit]
            and self.limits.room[limit] < amount
            for limit, amount in zip(self.limits.of_job[row].tolist(), self.limits.amount[row].tolist(), strict=True)
        )]  # fmt: skip

    def _is_gone(self, row: int, gone: Bools) -> bool:
        return any(limit >= 0 and gone[limit] for limit in self.limits.of_job[row].tolist())

    def _of(self, row: int) -> Iterator[tuple[int, int, float]]:
        """Limits of these kinds in which the job counts, their kind, and what it was taken to use."""
        for limit, amount in zip(self.limits.counted(row), self.limits.amount[row].tolist(), strict=True):
            if limit != NONE and self._kind[limit] != NONE:
                yield limit, self._kind[limit], amount

    def _use(self, row: int, start_s: float, now_s: float) -> None:
        ran_s = max(now_s - max(start_s, self.counted_s), 0.0)
        if not ran_s:
            return
        for limit, kind, _ in self._of(row):
            used = ran_s * float(self._factor[row]) * (1.0 if kind == WALL_S else float(self._gpus[row]))
            used *= decay_per_s(self.model) ** ran_s if self._fades[limit] else 1.0
            before = whole_minutes(self.used[limit])
            self.used[limit] += used if kind != RUN_GPU_S else 0.0
            self.limits.room[limit] += self._moved(row, kind, ran_s) + before - whole_minutes(self.used[limit])

    def _moved(self, row: int, kind: int, ran_s: float) -> float:
        """What a job no longer may use, of what was taken for it, once it has run so long."""
        taken = bool(self._ahead[row]) and (kind == RUN_GPU_S or (kind == GPU_S and self.model.safe_limits))
        return ran_s * float(self._gpus[row]) if taken else 0.0


# What slurmctld makes of a request when it comes.

REASONS = (
    "", "BadConstraints", "PartitionTimeLimit", "PartitionNodeLimit", "MaxWallDurationPerJob", "MaxGRESPerJob",
    "MaxGRESMinutesPerJob",
    *WHY.values(),
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Admission:
    """Of each job: why it would wait for ever, "" = it may start. (J,).

    submitted: limits on jobs that came and have not ended. Only time limits that are told are held against a job.
    Source: Slurm's src/slurmctld/job_mgr.c (job_limits_check) and acct_policy.c; reasons as squeue shows them, without
    QOS or Assoc before.
    """

    why: Labels
    submitted: LimitTable

    @classmethod
    def of(
        cls,
        trace: Trace,
        requests: SubmittedRequests,
        layout: ClusterLayout,
        tree: AssociationTree,
        nodes: Int64s,
        never: Bools,
        running: LimitTable,
    ) -> Admission:
        """trace: with the limits that time_limits gives. nodes, never: (J,) of each job, as JobDemands has them.
        running: limits on jobs that run."""
        part = layout.partition_rows(requests.partition)
        max_s, least, most = (layout.of_partitions(name)[part] for name in ("max_time_s", "min_nodes", "max_nodes"))
        limit_s, (wall_s, gpus, gpu_s) = trace.time_limit_s, _of_job(requests, layout, tree)
        why = np.array([*map(REASONS.index, running.why), 0], np.int32)[running.beyond()]
        why[trace.limit_known & (gpu_s != 0) & (trace.gpus * limit_s > np.maximum(gpu_s, 0.0))] = 6
        why[(gpus != 0) & (trace.gpus > np.maximum(gpus, 0))] = 5
        why[trace.limit_known & (wall_s != 0) & (limit_s > wall_s)] = 4
        asked = np.where(requests.nodes > 0, requests.nodes, nodes)
        why[((requests.nodes > 0) & (asked < least)) | ((most > 0) & (asked > most))] = 3
        why[trace.limit_known & (max_s > 0) & (limit_s > max_s)] = 2
        why[never] = 1
        ones = {"jobs": np.ones(len(trace))}
        return cls(Labels(why, REASONS), LimitTable(layout, requests, ones, tree, SUBMITTED))

    @property
    def endless(self) -> bool:
        """Whether nothing limits how many jobs may be there."""
        return not len(self.submitted.room)

    def lets_in(self, row: int, tasks: Int64s) -> bool:
        """Whether the job comes in: it could start one day, and there is room for it with the tasks of its array."""
        if self.why[row] or not self.submitted.holds(tasks):
            return False
        self.submitted.use(row)
        return True

    def leaves(self, row: int) -> None:
        """The job has ended."""
        self.submitted.use(row, -1)


def time_limits(trace: Trace, requests: SubmittedRequests, layout: ClusterLayout, tree: AssociationTree) -> Floats:
    """Time limit of each job [s]. (J,).

    An unknown limit is DefaultTime. Without one it is the partition's MaxTime, or what MaxWall or MaxTRESMins of the
    QOS or account leave. It is never less than the run time of the job.
    """
    part = layout.partition_rows(requests.partition)
    max_s, default_s = (layout.of_partitions(name)[part] for name in ("max_time_s", "default_time_s"))
    wall_s, _, gpu_s = _of_job(requests, layout, tree)
    capped_s = np.minimum(np.where(max_s > 0, max_s, np.inf), np.where(wall_s > 0, wall_s, np.inf))
    capped_s = np.minimum(capped_s, np.where(gpu_s > 0, gpu_s / np.maximum(trace.gpus, 1), np.inf))
    taken_s = np.where(default_s > 0, np.minimum(default_s, capped_s), capped_s)
    taken_s = np.maximum(np.where(np.isfinite(taken_s), taken_s, 0.0), trace.time_limit_s)
    limit_s: Floats = np.where(trace.limit_known, trace.time_limit_s, taken_s)
    return limit_s


def _of_job(requests: SubmittedRequests, layout: ClusterLayout, tree: AssociationTree) -> tuple[Floats, Floats, Floats]:
    """MaxWall [s], and MaxTRES and MaxTRESMins of GPUs [GPU s] of each job: those of its QOS in their order, else its
    association's; 0 = none, BARRED. (J,)."""
    groups, place = groups_of(layout, requests, tree)
    found = np.zeros((len(groups), 3))
    for at, (row, ordered) in enumerate(groups):
        found[at] = [_inherited_limit(tree, row, ordered, name) for name in _PER_JOB]
    wall_s, gpus, gpu_s = found[place].T
    return wall_s, gpus, gpu_s


_PER_JOB = ("max_wall_s", "max_gpus_per_job", "max_gpu_s_per_job")


def _inherited_limit(tree: AssociationTree, row: int, ordered: Sequence[LimitSpec], name: str) -> float:
    of_qos = next((much for qos in ordered if (much := float(getattr(qos, name)))), 0.0)
    return of_qos or float(tree.nearest(row, name))
