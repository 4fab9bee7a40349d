"""What each account is entitled to: the shares of Slurm's associations, read from slurmdbd once an hour."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from slurmsched.errors import SlurmError
from slurmsched.model.snapshot import Site, Snapshot
from slurmsched.slurm.commands import Commands

RELOAD_S = 3600.0
RETRY_S = 600.0  # after no answer
ROOT = "root"
_ASKED = ("sacctmgr", "-nP", "show", "assoc", "format=cluster,account,parentname,user,share")


class Shares:
    """Gives snapshots the shares of accounts. Read at the first snapshot and again every hour, ten minutes after
    no answer.

    slurmdbd is asked, so slurmctld has no work with it, and no rights are needed (but PrivateData=accounts hides
    other users' accounts). Without slurmdbd there are none. What cannot be read stays as it was, and is told.
    """

    def __init__(self, commands: Commands, clock: Callable[[], float] = time.monotonic) -> None:
        self._commands, self._clock = commands, clock
        self._read_s = float("-inf")
        self._shares: Mapping[str, float] = {}
        self._warnings: tuple[str, ...] = ()

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the shares of its accounts."""
        if self._clock() - self._read_s > RELOAD_S:
            self._read(snapshot.site)
            self._read_s = self._clock() - (RELOAD_S - RETRY_S if self._warnings else 0.0)
        return replace(snapshot, shares=self._shares, warnings=(*snapshot.warnings, *self._warnings))

    def _read(self, site: Site) -> None:
        if not site.settings.get("AccountingStorageType", "").endswith("slurmdbd"):
            return
        try:
            self._shares, self._warnings = parse_shares(self._commands.run(*_ASKED), site.cluster), ()
        except SlurmError as error:
            self._warnings = (f"shares of accounts: {error}",)


def parse_shares(text: str, cluster: str) -> dict[str, float]:
    """Shares by account, from rows of cluster, account, parent, user and share; users' own rows do not count.

    Top accounts have their shares as they are; what is below another account divides that one's by shares. "parent"
    in the place of a number counts as 1. Rows of other clusters and of another form are left out.
    """
    rows = [line.split("|") for line in text.splitlines()]
    mine = [
        row for row in rows if len(row) == 5 and row[0].lower() == cluster.lower() and not row[3] and row[1] != ROOT
    ]
    raw = {account: _number(share) for _, account, _, _, share in mine}
    parents = {account: parent for _, account, parent, _, _ in mine}
    totals: dict[str, float] = {}
    for account, parent in parents.items():
        totals[parent] = totals.get(parent, 0.0) + raw[account]

    def whole(account: str, above: frozenset[str]) -> float:
        parent = parents[account]
        if parent not in raw or parent in above:
            return raw[account]
        return whole(parent, above | {account}) * raw[account] / (totals[parent] or 1.0)

    return {account: whole(account, frozenset()) for account in sorted(raw)}


def _number(share: str) -> float:
    return float(share) if share.isdecimal() else 1.0
