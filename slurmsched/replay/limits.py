"""Limits of QOS, accounts and users: how much of each is left, and which of them each job uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from slurmsched.model.columns import Floats, Int64s
from slurmsched.replay.associations import Associations
from slurmsched.replay.layout import Layout, Limits
from slurmsched.replay.requests import Requests

NONE = -1
UNTAKEN = "group wall_s"  # each job that starts is held against it alone
Key = tuple[str, ...]  # "qos" or "account", which limit, of whom
Wish = tuple[Key, float, str, bool]  # its limit, what a job uses of it, whether the job is held back by it
# What is limited -> field on each user, field on the whole group; "" = there is none.
RUNNING: Mapping[str, tuple[str, str]] = {
    "jobs": ("max_jobs_per_user", "group_jobs"), "gpus": ("max_gpus_per_user", "group_gpus"),
    "gpu_s": ("", "group_gpu_s"), "wall_s": ("", "group_wall_s"), "run_gpu_s": ("", "group_run_gpu_s"),
}  # fmt: skip
SUBMITTED: Mapping[str, tuple[str, str]] = {"jobs": ("max_submit_per_user", "group_submit")}
# A group's or each user's limit on what -> why a job waits that is over it, as squeue has it.
WHY = {
    "jobs": "MaxJobsLimit", "gpus": "MaxGRESPerUser", "group jobs": "GrpJobsLimit", "group gpus": "GrpGRES",
    "group gpu_s": "GrpGRESMinutes", "group wall_s": "GrpWallLimit", "group run_gpu_s": "GrpGRESRunMinutes",
}  # fmt: skip


class LimitTable:
    """Every limit that some job falls under: of its partition's QOS and its own, and of its associations.

    Of each kind the first of the two QOS that has it holds the job back, else those of its associations do: on each
    user the nearest one's above it, of groups those of every level up to root. What runs is counted in all of them.
    keys: (L,) whose limit of what. room: (L,) what is left of each. why: (L,) what squeue says of who is over it.
    tried: (J, K) of_job as a pass of a scheduler has it, where a start takes nothing of what is UNTAKEN: L + row.
    of_job: (J, K) rows of room that hold the job back, -2 - row of those in which it only counts, NONE = none. amount:
    (J, K) what the job uses of it.
    amounts: of what a kind is (jobs, gpus, ...), what each job uses (J,). kinds: RUNNING, used from a job's start to
    its end, or SUBMITTED, from its submission to its end.
    Source: Slurm's src/slurmctld/acct_policy.c, and its "resource limits" page for the precedence.
    """

    def __init__(
        self,
        layout: Layout,
        requests: Requests,
        amounts: Mapping[str, Floats],
        tree: Associations,
        kinds: Mapping[str, tuple[str, str]],
    ) -> None:
        groups, place = groups_of(layout, requests, tree)
        wishes = [list(_wishes(tree, row, ordered, kinds)) for row, ordered in groups]
        room: dict[Key, float] = {key: max(much, 0.0) for each in wishes for key, much, _, _ in each}
        rows = {key: row for row, key in enumerate(room)}
        shape, whats = (max(len(wishes), 1), max(map(len, wishes), default=0) or 1), list(kinds)
        of_group, of_what = np.full(shape, NONE, np.int64), np.zeros(shape, np.int64)
        for at, each in enumerate(wishes):
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
        used = np.stack([amounts[what] for what in whats])
        self.amount: Floats = used[of_what[place], np.arange(len(place))[:, None]]

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
    layout: Layout, requests: Requests, tree: Associations
) -> tuple[list[tuple[int, tuple[Limits, ...]]], Int64s]:
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
        both = [known.get(name, Limits(name)) for name in (layout.partitions[part].qos, names[own])]
        found.append((row, _in_order(*both)))
    return found, place.reshape(-1).astype(np.int64)


def _in_order(partition: Limits, own: Limits) -> tuple[Limits, ...]:
    """QOS of a partition, if it has one, and of a job, the one that counts first first."""
    if not partition.name or partition.name == own.name:
        return (own,)
    return (own, partition) if own.over_part_qos else (partition, own)


def _wishes(
    tree: Associations, row: int, ordered: Sequence[Limits], kinds: Mapping[str, tuple[str, str]]
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
        for qos in ordered:
            if much := getattr(qos, whole):
                yield ("qos", f"group {what}", qos.name), much, what, free
                free = False
        for above in tree.chain(row):
            limits = tree.limits[above]
            if much := getattr(limits, whole):
                yield ("account", f"group {what}", limits.name, limits.user), much, what, free
