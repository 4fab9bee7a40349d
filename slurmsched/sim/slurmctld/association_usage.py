"""The tree of accounts and their users: whose limits and shares each job of a trace falls under."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.sim.cluster_layout import PARENT, ClusterLayout, LimitSpec
from slurmsched.sim.event_loop import EventHeap, EventKind
from slurmsched.sim.slurmctld.job_demands import JobDemands, SubmittedRequests
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings

ROOT = "root"
Key = tuple[str, str]  # account, user or ""


@dataclass(frozen=True, slots=True, eq=False)
class AssociationTree:
    """One row an association: 0 is root, accounts come before what is below them. (A,) but of_job (J,).

    limits: as given.
    parent: row above, -1 above root.
    user: whether it is a user's.
    of_job: the user's own row, the account's for a job without a user.
    """

    limits: tuple[LimitSpec, ...]
    parent: Int64s
    user: Bools
    of_job: Int64s

    @classmethod
    def of(cls, known: Sequence[LimitSpec], requests: SubmittedRequests) -> AssociationTree:
        """Those given, and one with one share for every account and user of the jobs that was not.

        Raises InputError for an account whose parent is not there, or is below itself.
        """
        given = {(each.name, each.user): each for each in reversed(known)}
        width = max(len(requests.user.names), 1)
        pair, place = np.unique(
            requests.account.codes.astype(np.int64) * width + requests.user.codes, return_inverse=True
        )
        pairs = [(requests.account.names[code // width], requests.user.names[code % width]) for code in pair.tolist()]
        named = {account: LimitSpec(account) for account, _ in (*pairs, *given)}
        accounts = named | {name: each for (name, user), each in given.items() if not user}
        ordered = list(_from_root(accounts))
        users = {key: given.get(key) or LimitSpec(key[0], user=key[1]) for key in (*pairs, *given) if key[1]}
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


def _above(limits: LimitSpec) -> Key:
    return (limits.name, "") if limits.user else (limits.parent or ROOT, "")


def _from_root(accounts: dict[str, LimitSpec]) -> Iterator[LimitSpec]:
    """Root, then every account after its parent, otherwise by name."""
    yield replace(accounts.pop(ROOT, LimitSpec(ROOT)), parent="")
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


# Fair share of priority/multifactor.

LN2 = 0.693  # with Slurm's own digits
MONTHS = {"monthly": 1, "quarterly": 3, "yearly": 12}


class FairShareFactors:
    """Without a weight nothing is counted; else usage is, every calc_period_s and at the end of each run. Factors
    follow it every calc_period_s only, as in Slurm's decay thread.

    factors: (A,) of each association, 0 to 1, of accounts 0. usage: (A,) of each and all below it [billing s], decayed.
    billing: (J,) what a second of each job costs.
    Source: Slurm's priority/multifactor (fair_tree.c, priority_multifactor.c).
    """

    def __init__(self, tree: AssociationTree, model: SlurmctldSettings, billing: Floats) -> None:
        self.tree, self.model, self.billing = tree, model, billing
        self._decay = decay_per_s(model)
        self._family = _families(tree)
        self._shares_norm = self._normed()
        self._paths = [np.array(tree.chain(row)) for row in range(len(tree.limits))]
        self.usage = np.zeros(len(tree.limits))
        for row, each in enumerate(tree.limits):
            if tree.user[row] and model.usage_reset != "now":
                self.usage[self._paths[row]] += each.usage
        self._start_s: dict[int, float] = {}
        self.counted_s, self._due_s = float(model.whole_ticks(0.0)), -math.inf
        self._reset_s = self._next_reset_s(self.counted_s)
        self._of_accounts = self._accounts_usage()
        self._factors: Floats | None = None
        self._counted = self.usage.copy()  # by usage as it was last counted

    @property
    def factors(self) -> Floats:
        """By the usage at the last count. Made when they are asked for."""
        if self._factors is None:
            self._factors = self._made(self._counted)
        return self._factors

    @classmethod
    def of(
        cls,
        tree: AssociationTree,
        model: SlurmctldSettings,
        layout: ClusterLayout,
        demand: JobDemands,
        requests: SubmittedRequests,
    ) -> FairShareFactors:
        """That of a cluster's jobs: what they cost by their partitions' weights and their QOS's factors."""
        factor = {each.name: each.usage_factor for each in layout.qos}
        of_qos = requests.qos.map(lambda name: factor.get(name, 1.0), np.float64)
        return cls(tree, model, demand.billing(layout, largest=model.billing_max) * of_qos)

    def recorded_until(self, time_s: float) -> None:
        """Until then it is told from elsewhere when usage is counted."""
        self._due_s = time_s

    def watch(self, now_s: float, events: EventHeap) -> None:
        """See to it that usage is counted again."""
        if self._due_s <= now_s:
            step_s = self.model.calc_period_s or 1.0
            self._due_s = float(self.model.floor(now_s, step_s)) + step_s
            events.push(self._due_s, EventKind.USAGE)

    def started(self, row: int, now_s: float) -> None:
        """The job of this row runs."""
        if self.model.weight_fairshare:
            self._start_s[row] = float(self.model.whole_ticks(now_s))

    def stopped(self, row: int, now_s: float) -> None:
        """Its run is over: what was not counted yet is, at once; factors change at the next count."""
        if row in self._start_s:
            self._use(row, self._start_s.pop(row), float(self.model.whole_ticks(now_s)))

    def count(self, now_s: float) -> bool:
        """All usage fades, and what ran since the last time is added. Whether what was before is forgotten."""
        now_s = float(self.model.whole_ticks(now_s))
        if forgotten := now_s >= self._reset_s:
            self.usage[:] = 0.0
            self._reset_s = self._next_reset_s(now_s)
        if not self.model.fair_tree:
            self._of_accounts = self._accounts_usage()
        self.usage *= self._decay ** max(now_s - self.counted_s, 0.0)
        for row, start_s in self._start_s.items():
            self._use(row, start_s, now_s)
        self.counted_s = now_s
        if self.model.weight_fairshare:
            self._factors, self._counted = None, self.usage.copy()
        return forgotten

    def _made(self, usage: Floats) -> Floats:
        """Factors by this usage of each association. (A,), (A,)."""
        return self._tree_factors(usage) if self.model.fair_tree else self._classic_factors(usage)

    def points(self, rows: Int64s) -> Floats:
        """What the factor adds to the priority of these jobs. (N,)."""
        if not self.model.weight_fairshare:
            return np.zeros(len(rows))
        found: Floats = self.model.weight_fairshare * self.factors[self.tree.of_job[rows]]
        return found

    def _use(self, row: int, start_s: float, now_s: float) -> None:
        ran_s = max(now_s - max(start_s, self.counted_s), 0.0)
        self.usage[self._paths[self.tree.of_job[row]]] += ran_s * self._decay**ran_s * self.billing[row]

    def _normed(self) -> Floats:
        """Shares over those of all siblings; those that count as their parent have 0. (A,)."""
        raw = np.array([max(each.shares, 0) for each in self.tree.limits], np.float64)
        total = np.bincount(np.maximum(self._family, 0), raw * (self._family >= 0), len(raw))
        return np.where(self._family >= 0, raw / np.maximum(total[self._family], 1e-300), 1.0)

    def _tree_factors(self, usage: Floats) -> Floats:
        """Fair tree: users in the order of their branches' level fair share, ties share a rank."""
        tree, above = self.tree, self._family
        used = np.divide(usage, usage[above], out=np.zeros_like(usage), where=usage[above] > 0)
        level = np.divide(self._shares_norm, used, out=np.full_like(used, math.inf), where=used > 0)
        level = np.where(self._shares_norm > 0, level, 0.0)
        level = np.where([each.shares == PARENT for each in tree.limits], math.inf, level)
        users = np.flatnonzero(tree.user)
        keys = self._branch_keys(level, users)
        order = np.lexsort(keys.T[::-1])
        rank = _ranks(keys[order])
        factors = np.zeros(len(level))
        factors[users[order]] = (len(users) - rank) / max(len(users), 1)
        return factors

    def _branch_keys(self, level: Floats, users: Int64s) -> Floats:
        """Of each user, from the top of the tree down: minus the level fair share, and 1 if that is an account's."""
        lines = [[row for row in self._line(int(user)) if row] for user in users.tolist()]
        keys = np.zeros((len(users), 2 * max(map(len, lines), default=0)))
        for place, line in enumerate(lines):
            for depth, row in enumerate(reversed(line)):
                keys[place, 2 * depth : 2 * depth + 2] = -level[row], not self.tree.user[row]
        return keys

    def _line(self, row: int) -> list[int]:
        """The row and what it is compared in, up to root."""
        found = [row]
        while (row := int(self._family[row])) >= 0:
            found.append(row)
        return found

    def _accounts_usage(self) -> Floats:
        """Effective usage of accounts in the classic algorithm; one count behind that of users, as in Slurm. (A,)."""
        found = np.zeros(len(self.usage))
        for row in np.flatnonzero(~self.tree.user).tolist():
            found[row] = self._effective(row, self.usage, found)
        return found

    def _effective(self, row: int, usage: Floats, of_accounts: Floats) -> float:
        """Usage over the cluster's, mixed with that of the account it is in by its share of that."""
        above, all_used = int(self._family[row]), float(usage[0])
        normed = float(usage[row]) / all_used if all_used else 0.0
        if above <= 0:
            return normed
        return normed + (float(of_accounts[above]) - normed) * float(self._shares_norm[row])

    def _classic_factors(self, usage: Floats) -> Floats:
        """2 to the minus (effective usage over share): 0.5 for who used just its share."""
        factors, share = np.zeros(len(usage)), self._cluster_shares()
        for row in np.flatnonzero(self.tree.user).tolist():
            of = row if self.tree.limits[row].shares != PARENT else int(self._family[row])
            used = float(self._of_accounts[of]) if of != row else self._effective(row, usage, self._of_accounts)
            if share[of] > 0:
                factors[row] = 2.0 ** (-used / share[of] / self.model.damping)
        return factors

    def _cluster_shares(self) -> Floats:
        """Shares of the whole cluster. (A,)."""
        found = self._shares_norm.copy()
        for row in range(1, len(found)):
            found[row] *= found[self._family[row]]
        return found

    def _next_reset_s(self, now_s: float) -> float:
        """When usage is forgotten next, by the calendar in UTC [s]; infinite without a PriorityUsageResetPeriod."""
        day = datetime.fromtimestamp(self.model.epoch_s + now_s, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        period = self.model.usage_reset
        if period in ("daily", "weekly"):
            then = day + timedelta(days=1 if period == "daily" else 7 - day.isoweekday() % 7)
        elif step := MONTHS.get(period):
            month = (day.month - 1) // step * step + step
            then = day.replace(year=day.year + month // 12, month=month % 12 + 1, day=1)
        else:
            return math.inf
        return then.timestamp() - self.model.epoch_s


def decay_per_s(model: SlurmctldSettings) -> float:
    """What is left of usage after a second."""
    return 1 - LN2 / model.decay_half_life_s if model.decay_half_life_s else 1.0


def _families(tree: AssociationTree) -> Int64s:
    """The account whose children each is compared with: accounts that count as their parent are passed over. (A,)."""
    family = tree.parent.copy()
    for row in range(1, len(family)):
        while family[row] > 0 and tree.limits[family[row]].shares == PARENT:
            family[row] = tree.parent[family[row]]
    return family


def _ranks(keys: Floats) -> Int64s:
    """Place of each row of sorted keys, that of the first it ties with. (U,).

    Users tie where all keys are equal; one in an account ties with a user beside the account that has its key.
    """
    if not len(keys):
        return np.zeros(0, np.int64)
    differs = keys[1:] != keys[:-1]
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), 1)
    new = np.concatenate([[True], first % 2 == 0])
    return np.maximum.accumulate(np.where(new, np.arange(len(keys)), 0))
