"""Limits of QOS and accounts: how much of each is left, and which of them each job uses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurmsched.model.columns import Floats, Int64s, Labels
from slurmsched.replay.layout import Layout, Limits
from slurmsched.replay.requests import Requests

NONE = -1


class LimitTable:
    """Every limit that some job falls under.

    room: (L,) what is left of each. of_job: (J, K) rows of room, -1 = none. amount: (J, K) what the job uses of it.
    """

    def __init__(self, layout: Layout, requests: Requests, gpus: Int64s) -> None:
        self._room: list[float] = []
        self._row: dict[tuple[str, ...], int] = {}
        ones = np.ones(len(gpus))
        columns = []
        for kind, owner, known in (("qos", requests.qos, layout.qos), ("account", requests.account, layout.accounts)):
            by_name = {limits.name: limits for limits in known}
            each = [by_name.get(name, Limits(name)) for name in owner.names]
            columns += [
                (self._rows(kind, "jobs", owner, requests.user, [limits.max_jobs_per_user for limits in each]), ones),
                (self._rows(kind, "gpus", owner, requests.user, [limits.max_gpus_per_user for limits in each]), gpus),
                (self._rows(kind, "group jobs", owner, None, [limits.group_jobs for limits in each]), ones),
                (self._rows(kind, "group gpus", owner, None, [limits.group_gpus for limits in each]), gpus),
            ]
        used = [column for column in columns if (column[0] != NONE).any()] or columns[:1]
        self.room: Floats = np.array(self._room, np.float64)
        self.of_job: Int64s = np.stack([rows for rows, _ in used], axis=1).astype(np.int64)
        self.amount: Floats = np.stack([amount for _, amount in used], axis=1).astype(np.float64)

    def use(self, row: int, sign: int = 1) -> None:
        """The job starts (1) or ends (-1)."""
        for limit, amount in zip(self.of_job[row].tolist(), self.amount[row].tolist(), strict=True):
            if limit != NONE:
                self.room[limit] -= sign * amount

    def _rows(self, kind: str, what: str, owner: Labels, user: Labels | None, most: Sequence[int]) -> Int64s:
        """Row of the limit each job falls under. (J,)."""
        if not any(most):
            return np.full(len(owner), NONE, np.int64)
        users = user if user is not None else Labels.constant("", len(owner))
        pairs = zip(owner.codes.tolist(), users.codes.tolist(), strict=True)
        return np.array(
            [self._limit((kind, what, owner.names[o], users.names[u]), most[o]) for o, u in pairs], np.int64
        )

    def _limit(self, key: tuple[str, ...], most: int) -> int:
        if not most:
            return NONE
        if key not in self._row:
            self._row[key] = len(self._room)
            self._room.append(float(most))
        return self._row[key]
