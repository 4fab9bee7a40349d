"""The tree of accounts and their users: whose limits and shares each job of a trace falls under."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Bools, Int64s
from slurmsched.replay.layout import Limits
from slurmsched.replay.requests import Requests

ROOT = "root"
Key = tuple[str, str]  # account, user or ""


@dataclass(frozen=True, slots=True, eq=False)
class Associations:
    """One row an association: 0 is root, accounts come before what is below them. (A,) but of_job (J,).

    limits: as told. parent: row above, -1 above root. user: whether it is a user's. of_job: the user's own row, the
    account's for a job without a user.
    """

    limits: tuple[Limits, ...]
    parent: Int64s
    user: Bools
    of_job: Int64s

    @classmethod
    def of(cls, known: Sequence[Limits], requests: Requests) -> Associations:
        """Those told, and one with one share for every account and user of the jobs that was not.

        Raises InputError for an account whose parent is not there, or is below itself.
        """
        told = {(each.name, each.user): each for each in reversed(known)}
        width = max(len(requests.user.names), 1)
        pair, place = np.unique(
            requests.account.codes.astype(np.int64) * width + requests.user.codes, return_inverse=True
        )
        pairs = [(requests.account.names[code // width], requests.user.names[code % width]) for code in pair.tolist()]
        named = {account: Limits(account) for account, _ in (*pairs, *told)}
        accounts = named | {name: each for (name, user), each in told.items() if not user}
        ordered = list(_from_root(accounts))
        users = {key: told.get(key) or Limits(key[0], user=key[1]) for key in (*pairs, *told) if key[1]}
        limits = (*ordered, *(users[key] for key in sorted(users)))
        rows = {(each.name, each.user): row for row, each in enumerate(limits)}
        above = [-1, *(rows[_above(each)] for each in limits[1:])]
        mine = np.array([rows[key] for key in pairs], np.int64)
        of_job = mine[place.reshape(-1)] if len(pairs) else np.zeros(0, np.int64)
        return cls(limits, np.array(above, np.int64), np.array([bool(each.user) for each in limits]), of_job)

    def chain(self, row: int) -> list[int]:
        """The row and all above it, root last."""
        found = [row]
        while (row := int(self.parent[row])) >= 0:
            found.append(row)
        return found

    def nearest(self, row: int, name: str) -> float:
        """A limit on each user: the user's own, else that of the next account above that has one; 0 = none."""
        values = (float(getattr(self.limits[each], name)) for each in self.chain(row))
        return next((value for value in values if value), 0.0)


def _above(limits: Limits) -> Key:
    return (limits.name, "") if limits.user else (limits.parent or ROOT, "")


def _from_root(accounts: dict[str, Limits]) -> Iterator[Limits]:
    """Root, then every account after its parent, otherwise by name."""
    yield replace(accounts.pop(ROOT, Limits(ROOT)), parent="")
    for name, each in accounts.items():
        if each.parent and each.parent != ROOT and each.parent not in accounts:
            raise InputError(f"account {name!r} is below {each.parent!r}, which is no account; add it or change parent")
    done = {ROOT}
    while accounts:
        ready = sorted(name for name, each in accounts.items() if (each.parent or ROOT) in done)
        if not ready:
            raise InputError(f"account {min(accounts)!r} is below itself; change its parent")
        yield from (accounts.pop(name) for name in ready)
        done |= set(ready)
