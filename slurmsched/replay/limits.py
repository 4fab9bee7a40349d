"""Limits of QOS, accounts and users: how much of each is left, and which of them each job uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from slurmsched.model.columns import Floats, Int64s
from slurmsched.replay.associations import Associations
from slurmsched.replay.layout import Layout, Limits
from slurmsched.replay.requests import Requests

NONE = -1
Wish = tuple[tuple[str, ...], float, str]  # whose limit of what, how much, what a job uses of it: "jobs" or "gpus"
# What is limited -> field on each user, field on the whole group.
RUNNING: Mapping[str, tuple[str, str]] = {
    "jobs": ("max_jobs_per_user", "group_jobs"), "gpus": ("max_gpus_per_user", "group_gpus"),
}  # fmt: skip
SUBMITTED: Mapping[str, tuple[str, str]] = {"jobs": ("max_submit_per_user", "group_submit")}
# A group's or each user's limit on what -> why a job waits that is over it, as squeue has it.
WHY = {"jobs": "MaxJobsLimit", "gpus": "MaxGRESPerUser", "group jobs": "GrpJobsLimit", "group gpus": "GrpGRES"}


class LimitTable:
    """Every limit that some job falls under: of its QOS; where that has none of a kind, of its associations.

    Limits on each user are the nearest one's above it, those of groups hold on every level up to root. room: (L,) what
    is left of each. why: (L,) what squeue says of who is over it. of_job: (J, K) rows of room, NONE = none. amount:
    (J, K) what the job uses of it.
    kinds: RUNNING, used from a job's start to its end, or SUBMITTED, from its submission to its end.
    Source: Slurm's src/slurmctld/acct_policy.c, and its "resource limits" page for the precedence.
    """

    def __init__(
        self, layout: Layout, requests: Requests, gpus: Int64s, tree: Associations, kinds: Mapping[str, tuple[str, str]]
    ) -> None:
        group, place = np.unique(
            tree.of_job * max(len(requests.qos.names), 1) + requests.qos.codes, return_inverse=True
        )
        wishes = _of_groups(layout, requests, group, tree, kinds)
        room: dict[tuple[str, ...], float] = {key: max(much, 0.0) for each in wishes for key, much, _ in each}
        rows = {key: row for row, key in enumerate(room)}
        shape = max(len(wishes), 1), max(map(len, wishes), default=0) or 1
        of_group, of_gpus = np.full(shape, NONE, np.int64), np.zeros(shape, np.bool_)
        for at, each in enumerate(wishes):
            of_group[at, : len(each)] = [rows[key] for key, _, _ in each]
            of_gpus[at, : len(each)] = [what == "gpus" for _, _, what in each]
        place = place.reshape(-1).astype(np.int64)
        self.why = tuple(WHY[key[1]] for key in rows)
        self.room: Floats = np.array(list(room.values()), np.float64)
        self.of_job: Int64s = of_group[place]
        self.amount: Floats = np.where(of_gpus[place], gpus[:, None], 1).astype(np.float64)

    def beyond(self) -> Int64s:
        """Row of a limit that each job is over by itself, so that it would wait for ever, NONE of none. (J,)."""
        over = np.append(self.room, np.inf)[self.of_job] < self.amount
        return np.where(over, self.of_job, NONE).max(axis=1, initial=NONE)

    def use(self, row: int, sign: int = 1) -> None:
        """The job takes (1) or gives back (-1)."""
        for limit, amount in zip(self.of_job[row].tolist(), self.amount[row].tolist(), strict=True):
            if limit != NONE:
                self.room[limit] -= sign * amount

    def holds(self, rows: Int64s) -> bool:
        """Whether there is room for all these jobs, which have the same limits."""
        return all(
            limit == NONE or self.room[limit] >= self.amount[rows, column].sum()
            for column, limit in enumerate(self.of_job[rows[0]].tolist())
        )


def _of_groups(
    layout: Layout, requests: Requests, group: Int64s, tree: Associations, kinds: Mapping[str, tuple[str, str]]
) -> list[list[Wish]]:
    """The limits of the jobs of each group. group: (G,) row of the association times the count of QOS, plus the QOS."""
    qos, names = {each.name: each for each in layout.qos}, requests.qos.names
    places = [divmod(code, max(len(names), 1)) for code in group.tolist()]
    return [list(_wishes(tree, row, qos.get(names[code], Limits(names[code])), kinds)) for row, code in places]


def _wishes(tree: Associations, row: int, qos: Limits, kinds: Mapping[str, tuple[str, str]]) -> Iterator[Wish]:
    """The limits of a job of this association and QOS."""
    leaf = tree.limits[row]
    for what, (each, whole) in kinds.items():
        if much := getattr(qos, each):
            yield ("qos", what, qos.name, leaf.user), much, what
        elif much := tree.nearest(row, each):
            yield ("account", what, leaf.name, leaf.user), much, what
        if much := getattr(qos, whole):
            yield ("qos", f"group {what}", qos.name), much, what
            continue
        for above in tree.chain(row):
            limits = tree.limits[above]
            if much := getattr(limits, whole):
                yield ("account", f"group {what}", limits.name, limits.user), much, what
