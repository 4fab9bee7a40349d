"""What slurmdbd knows of QOS and associations: what tiers order by, and which limits of partitions a QOS lifts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from slurmsched.errors import SlurmError
from slurmsched.model.columns import Floats
from slurmsched.model.jobs import Jobs
from slurmsched.model.slurm_text import real_number
from slurmsched.model.snapshot import Snapshot
from slurmsched.resources.partition_limits import LIFTING_FLAGS, beyond_limits
from slurmsched.slurm.commands import Commands
from slurmsched.tier_spec import Tier

PRIORITIES_S = 3600.0  # QOS and associations are asked for again after this long
FAIR_SHARE_S = 60.0  # Slurm itself counts usage every PriorityCalcPeriod, 5 minutes by default
RETRY_S = 600.0  # after no answer
_QOS = ("sacctmgr", "-nP", "show", "qos", "format=name,priority")
_ASSOCIATIONS = ("sacctmgr", "-nP", "show", "assoc", "format=cluster,account,user,priority")
_FAIR_SHARE = ("sshare", "-a", "-n", "-P", "-o", "Account,User,FairShare")
_QOS_FLAGS = ("sacctmgr", "-nP", "show", "qos", "format=name,flags")
Owner = tuple[str, str]  # account, user


class SitePriorities:
    """Gives the jobs of snapshots their qos_priority, association_priority and fair_share, as far as tiers need them.

    What cannot be read stays as it was, with a warning, and is asked for again ten minutes later.
    """

    def __init__(self, commands: Commands, tiers: Sequence[Tier], clock: Callable[[], float] = time.monotonic) -> None:
        kinds = {tier.kind for tier in tiers}
        every = [
            _Source(commands, clock, _QOS, parse_qos, "qos_priority", "priorities of QOS", PRIORITIES_S),
            _Source(commands, clock, _ASSOCIATIONS, parse_associations, "association_priority",
                    "priorities of associations", PRIORITIES_S),
            _Source(commands, clock, _FAIR_SHARE, parse_fair_share, "fair_share", "fair-share factors", FAIR_SHARE_S),
        ]  # fmt: skip
        wanted = {"qos": 0, "account": 1, "fair_share": 2}
        self._sources = [every[place] for kind, place in wanted.items() if kind in kinds]

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with these columns. Without slurmdbd there is nothing to read."""
        if not snapshot.site.accounts_in_slurmdbd:
            return snapshot
        warnings = list(snapshot.warnings)
        columns = {source.column: source.values(snapshot, warnings) for source in self._sources}
        if not columns:
            return snapshot
        return replace(snapshot, jobs=snapshot.jobs.with_columns(**columns), warnings=tuple(warnings))


class LiftedLimits:
    """Gives the jobs of snapshots their lifted_limits. Slurm is asked only while a job is beyond a partition limit."""

    def __init__(self, commands: Commands, clock: Callable[[], float] = time.monotonic) -> None:
        self._commands, self._clock = commands, clock
        self._due_s, self._known, self._warning = -math.inf, dict[str, int](), ""

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with this column. Without slurmdbd there is nothing to read."""
        if not snapshot.site.accounts_in_slurmdbd or not beyond_limits(snapshot).any():
            return snapshot
        if self._clock() >= self._due_s:
            self._read()
        lifted = snapshot.jobs.qos.map(lambda name: self._known.get(name.lower(), 0), np.int32)
        warnings = (*snapshot.warnings, *([self._warning] if self._warning else ()))
        return replace(snapshot, jobs=snapshot.jobs.with_columns(lifted_limits=lifted), warnings=warnings)

    def _read(self) -> None:
        try:
            self._known = parse_qos_flags(self._commands.run(*_QOS_FLAGS))
            self._due_s, self._warning = self._clock() + PRIORITIES_S, ""
        except SlurmError as error:
            self._due_s, self._warning = self._clock() + RETRY_S, f"flags of QOS: {error}"


class _Source:
    """One command, what it said last, and when it is asked again."""

    def __init__(
        self, commands: Commands, clock: Callable[[], float], asked: tuple[str, ...],
        parse: Callable[[str, str], Mapping[Any, float]], column: str, what: str, again_s: float,
    ) -> None:  # fmt: skip
        self._commands, self._clock, self._asked, self._parse = commands, clock, asked, parse
        self.column, self._what, self._again_s = column, what, again_s
        self._due_s, self._known, self._warning = -math.inf, dict[Any, float](), ""

    def values(self, snapshot: Snapshot, warnings: list[str]) -> Floats:
        """The column. A warning is added where Slurm did not answer. (N,)."""
        if self._clock() >= self._due_s:
            self._read(snapshot.site.cluster)
        warnings += [self._warning] if self._warning else []
        return column_of(snapshot.jobs, self._known, by_owner=self.column != "qos_priority")

    def _read(self, cluster: str) -> None:
        try:
            self._known = dict(self._parse(self._commands.run(*self._asked), cluster))
            self._due_s, self._warning = self._clock() + self._again_s, ""
        except SlurmError as error:
            self._due_s, self._warning = self._clock() + RETRY_S, f"policy.tiers: {self._what}: {error}"


def column_of(jobs: Jobs, known: Mapping[Any, float], *, by_owner: bool) -> Floats:
    """The value of each job by its account and user, or by its QOS; NaN where it is not known. (N,)."""
    if not by_owner:
        return jobs.qos.map(lambda name: known.get(name, math.nan), np.float64)
    width = max(len(jobs.user.names), 1)
    pairs, place = np.unique(jobs.account.codes.astype(np.int64) * width + jobs.user.codes, return_inverse=True)
    names = [(jobs.account.names[pair // width], jobs.user.names[pair % width]) for pair in pairs.tolist()]
    found = np.array([known.get(pair, math.nan) for pair in names], np.float64)
    return found[place.reshape(-1)] if len(found) else np.zeros(len(jobs))


def parse_qos(text: str, _cluster: str) -> dict[str, float]:
    """Priority by QOS, from rows of name and priority."""
    rows = (line.split("|") for line in text.splitlines())
    return {row[0]: real_number(row[1]) for row in rows if len(row) == 2 and row[0]}


def parse_qos_flags(text: str) -> dict[str, int]:
    """Bits of the partition limits that each QOS lifts, by its name in small letters, from rows of name and flags."""
    rows = (line.split("|") for line in text.splitlines())
    names = [flag.lower() for flag in LIFTING_FLAGS]
    return {
        row[0].lower(): sum(1 << bit for bit, name in enumerate(names) if name in row[1].lower().split(","))
        for row in rows
        if len(row) == 2
    }


def parse_associations(text: str, cluster: str) -> dict[Owner, float]:
    """Priority of each user in an account, from rows of cluster, account, user and priority.

    A user without a priority of its own has its account's, else 0. Rows of other clusters are left out.
    """
    rows = [line.split("|") for line in text.splitlines()]
    mine = [row for row in rows if len(row) == 4 and row[0].lower() == cluster.lower()]
    of_account = {row[1]: real_number(row[3]) for row in mine if not row[2]}
    return {(row[1], row[2]): real_number(row[3] or f"{of_account.get(row[1], 0.0):.0f}") for row in mine if row[2]}


def parse_fair_share(text: str, _cluster: str) -> dict[Owner, float]:
    """Fair-share factor of each user in an account, 0 to 1, from rows of account, user and factor.

    The rows of accounts, and of users without a factor, are left out; of a user with several associations in one
    account (one a partition) the first counts.
    """
    found: dict[Owner, float] = {}
    for line in text.splitlines():
        account, _, rest = line.strip().partition("|")
        user, _, factor = rest.partition("|")
        value = real_number(factor, math.nan)
        if user.strip() and not math.isnan(value):
            found.setdefault((account.strip(), user.strip()), min(max(value, 0.0), 1.0))
    return found
