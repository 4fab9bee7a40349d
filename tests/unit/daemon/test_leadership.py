"""Whether a daemon leads: asked before each cycle, kept up between cycles, told once when it changes."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from slurmsched.daemon import loop as leading_module
from slurmsched.daemon.loop import SOON_S, Leadership
from slurmsched.db import database as engines
from slurmsched.db import schema
from slurmsched.db.leader_lease import LeaderLease
from slurmsched.errors import LedgerError

LEASE_S = 8.0


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Events of the log."""
    told: list[str] = []
    log = SimpleNamespace(
        info=lambda event, **_: told.append(event), warning=lambda event, **_: told.append(event), error=None
    )
    monkeypatch.setattr(leading_module, "log", log)
    return told


@pytest.fixture
def hosts(tmp_path: Path, told: list[str]):
    """Two hosts on one database; what their clocks are ahead."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    engines.upgrade_schema(url)
    engine, ahead = engines.open_engine(url), {"a": 0.0, "b": 0.0}
    leases = {
        name: LeaderLease(engine, name, LEASE_S, lambda name=name: time.monotonic() + ahead[name]) for name in ahead
    }
    both = {name: Leadership(SimpleNamespace(lease=lease)) for name, lease in leases.items()}  # type: ignore[arg-type]
    yield SimpleNamespace(**both, leases=leases, ahead=ahead, engine=engine)
    engine.dispose()


def test_leading__a_host_alone_always_leads(told):
    """No lease, no question, nothing to be told."""
    alone = Leadership(None)
    alone.keep()
    assert (alone(), alone.step_s, alone.look_s(), told) == (True, float("inf"), float("inf"), [])


def test_leading__tells_each_change_once(hosts, told):
    """Taking, standing by, and again nothing while nothing changes."""
    assert [hosts.a(), hosts.b(), hosts.a(), hosts.b()] == [True, False, True, False]
    assert told == ["leader.taken", "leader.standby"]
    assert hosts.b.standby.startswith("a leads, term 1")


def test_leading__stands_by_until_the_lease_can_have_ended(hosts):
    """The next look is soon after the end of the leader's lease, however long the interval is."""
    hosts.a()
    hosts.b()
    assert 0 < hosts.b.look_s() <= LEASE_S + SOON_S
    assert hosts.a.look_s() == float("inf")


def test_keep__notices_that_another_has_taken_over(hosts, told):
    """A leader that slept too long learns of it between two cycles already."""
    hosts.a()
    with hosts.engine.begin() as connection:
        connection.execute(sa.update(schema.leader).values(ends_s=1.0))
    hosts.b()
    hosts.ahead["a"] = LEASE_S
    hosts.a.keep()
    assert told == ["leader.taken", "leader.taken", "leader.lost"]
    assert hosts.a() is False


def test_keep__says_that_the_database_is_away(hosts, told, monkeypatch):
    """It may come back before the lease ends: the next cycle asks again."""
    hosts.a()

    def away() -> None:
        raise LedgerError("no answer")

    monkeypatch.setattr(hosts.leases["a"], "keep", away)
    hosts.a.keep()
    assert told[-1] == "leader.not_renewed"
