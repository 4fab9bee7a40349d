"""Shares of accounts: parsed from what sacctmgr printed, read once an hour, kept when slurmdbd is away."""

from __future__ import annotations

from dataclasses import replace

from slurmsched.errors import SlurmError
from slurmsched.model.snapshot import Site
from slurmsched.slurm.accounting import SHARES_RELOAD_S, SHARES_RETRY_S, AccountShares, parse_shares
from slurmsched.testing import snapshot

# sacctmgr -nP show assoc format=cluster,account,parentname,user,share, Slurm 26.05.5, with other shares
TREE = """lab|root|||1
lab|root||root|1
lab|root||slurmsched|1
lab|industry|root||1
lab|industry||dave|1
lab|science|root||4
lab|biology|science||1
lab|biology||carol|1
lab|physics|science||3
lab|physics||alice|1
lab|physics||bob|parent
other|physics|root||9
"""
SITE = Site(cluster="lab", settings={"AccountingStorageType": "accounting_storage/slurmdbd"})
EXPECTED = {"biology": 1.0, "industry": 1.0, "physics": 3.0, "science": 4.0}


class Asked:
    """Commands that answer with the tree, and count."""

    def __init__(self) -> None:
        self.calls, self.away = 0, False

    def run(self, *_: str) -> str:
        self.calls += 1
        if self.away:
            raise SlurmError("slurmdbd is away")
        return TREE


def test_parse_shares__divides_down_the_tree() -> None:
    """What is below an account divides its shares; users, root and other clusters do not count."""
    assert parse_shares(TREE, "lab") == EXPECTED


def test_parse_shares__word_and_loop_do_no_harm() -> None:
    """ "parent" counts as 1, and a tree that bites its tail ends."""
    assert parse_shares("c|a|b||parent\nc|b|a||2\n", "c").keys() == {"a", "b"}
    assert parse_shares("c|a|root||parent\nnonsense\n", "c") == {"a": 1.0}


def test_shares__are_read_once_an_hour_and_kept() -> None:
    """One call an hour; a slurmdbd that is away changes nothing but the warnings."""
    commands, now = Asked(), [0.0]
    shares, given = AccountShares(commands, lambda: now[0]), replace(snapshot(), site=SITE)
    assert [shares(given).shares, shares(given).shares, commands.calls] == [EXPECTED, EXPECTED, 1]
    commands.away, now[0] = True, SHARES_RELOAD_S + 1
    later = shares(given)
    assert (later.shares, later.warnings) == (EXPECTED, ("shares of accounts: slurmdbd is away",))
    commands.away, now[0] = False, SHARES_RELOAD_S + SHARES_RETRY_S + 2
    assert shares(given).warnings == ()


def test_shares__without_slurmdbd_nobody_is_asked() -> None:
    """No associations without slurmdbd: none, without a call."""
    commands = Asked()
    assert (AccountShares(commands, lambda: 0.0)(snapshot()).shares, commands.calls) == ({}, 0)
