"""Two daemons, one Slurm: the leader is killed, stopped or cut off in the middle of an operation, and the other goes
on."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime

import orjson
import pytest
import sqlalchemy as sa

from slurmsched.db import database as engines
from slurmsched.db import schema
from tests.live.hosts import HERE, Host, cabled, hosts
from tests.live.lab import USERS, column, nices, run, submit, until
from tests.live.operations import clean, four_running, restarts, signalled, switched_on
from tests.live.test_ledger_backends import MARIADB, POSTGRESQL
from tests.unit.db.ledger_suite import emptied

pytestmark = pytest.mark.live

LEASE_S, INTERVAL_S = 4.0, 1.0
LATE_S = LEASE_S + 2 * INTERVAL_S  # beside a cycle's length: the database lets a transaction stand still for a lease
PORTS = {MARIADB: 3306, POSTGRESQL: 5432}


@contextmanager
def killed(host: Host) -> Iterator[None]:
    """As by kill -9; it is started again at the end."""
    host.signal(signal.SIGKILL)
    yield
    host.run()


@contextmanager
def stopped(host: Host) -> Iterator[None]:
    """It stands still, and goes on at the end as if no time had passed."""
    host.signal(signal.SIGSTOP)
    yield
    host.signal(signal.SIGCONT)


@pytest.fixture(params=[MARIADB, POSTGRESQL], ids=["mariadb", "postgresql"])
def url(request: pytest.FixtureRequest, fresh: None) -> Iterator[str]:
    """An empty database of a real server."""
    if request.param == POSTGRESQL:
        run("labctl", "start", "postgres")
    with emptied(request.param):
        yield request.param
    if request.param == POSTGRESQL:
        run("labctl", "stop", "postgres")


def preempting(*both: Host) -> None:
    """The shortest first, preemption on, slow writes."""
    for host in both:
        switched_on(host)
        host.configure(policy='{ name = "srsf" }', pace__writes_per_s="4.0")


def shared(url: str) -> list[dict]:
    """The lines that both hosts wrote, oldest first."""
    engine = engines.open_engine(url)
    table = schema.shared_lines
    with engine.connect() as connection:
        texts = connection.scalars(sa.select(table.c.text).order_by(table.c.id)).all()
    engine.dispose()
    return [orjson.loads(line) for text in texts for line in text.splitlines()]


def longest_s(url: str) -> float:
    """What the longest cycle on record took: one that stands by looks at Slurm as long as a cycle does."""
    engine = engines.open_engine(url)
    with engine.connect() as connection:
        took_s = connection.scalar(sa.select(sa.func.max(schema.cycles.c.duration_s)))
    engine.dispose()
    return float(took_s)


@contextmanager
def partitioned(stack: ExitStack, url: str) -> Iterator[tuple[Host, Host, Callable[[Host], object]]]:
    """Host a reaches the database by a cable that can be cut, and Slurm all the time: the worst case."""
    cable = stack.enter_context(cabled(PORTS[url]))
    far = url.replace("127.0.0.1", HERE)

    @contextmanager
    def cut(_: Host) -> Iterator[None]:
        cable.cut()
        yield
        cable.mend()

    with hosts(url, LEASE_S, cable.enter, far) as (a, b):
        yield a, b, cut


@contextmanager
def pair(fault: str, url: str) -> Iterator[tuple[Host, Host, Callable]]:
    """Hosts a and b, and what happens to a."""
    with ExitStack() as stack:
        if fault == "partitioned":
            yield stack.enter_context(partitioned(stack, url))
        else:
            a, b = stack.enter_context(hosts(url, LEASE_S))
            yield a, b, {"killed": killed, "stopped": stopped}[fault]


@pytest.mark.newest
@pytest.mark.parametrize("fault", ["killed", "stopped", "partitioned"])
def test_failover__the_other_finishes_what_the_leader_began(url, fault):
    """It takes over soon after the lease's end, by its log, ends the operation once, and the first one writes nothing
    more until it leads again; every value is on record and undo gives it back."""
    with pair(fault, url) as (a, b, happens):
        preempting(a, b)
        running, own = four_running(), wrong_order()
        a.run()
        until(lambda: a.told("leader.taken"), "a leads")
        b.run()
        until(lambda: b.told("leader.standby"), "b stands by")
        assert "a leads, term 1" in (status := b("status").out)
        assert "this host, b, stands by" in status
        urgent = submit("bob", 8, "--time=10", script="sleep 300")
        until(signalled, "a victim is warned")
        assert (bool(a.sent_s()), b.sent_s()) == (True, [])
        fault_s = time.time()
        with happens(a):
            until(lambda: b.told("leader.taken"), "b leads")
            until(lambda: urgent in column("%A", "RUNNING"), "the urgent job runs")
            until(clean, "nothing of the operation is left")
            resumed_s = time.time()
        late_s = told_s(b.told("leader.taken")[0]) - fault_s - LEASE_S  # a renewed before the fault, if at all
        limit_s = LATE_S + longest_s(url)
        assert late_s < limit_s, f"not within {limit_s:.0f} s of the lease's end, but {late_s:.1f}: b leads"
        until(lambda: a.told("leader.lost") or len(a.told("leader.standby")) or a.told("cycle.dropped"),
              "a knows that it leads no more")  # fmt: skip
        until(lambda: b.told("cycle.done")[-1]["planned"] == 0, "the order is as the policy wants it")
        assert any(nices()[job] != nice for job, nice in own.items())
        assert [time_s for time_s in a.sent_s() if time_s > resumed_s] == []
        assert (signalled(), sum(restarts(job) for job in running)) == (signalled()[:1], 1)
        terms = [line["term"] for line in shared(url)]
        assert (terms, set(terms)) == (sorted(terms), {1, 2})
        for host in (a, b):
            host.end()
        undone(b, own)


def told_s(line: dict) -> float:
    """When a line was logged [Unix s]."""
    return datetime.fromisoformat(line["timestamp"]).timestamp()


def wrong_order() -> dict[int, int]:
    """Twelve waiting jobs, the longest first; the nice that their users chose."""
    return {submit(USERS[i % 4], 1, "--partition=phantom", f"--time={50 - i}", f"--nice={i}"): i for i in range(12)}


def undone(host: Host, own: dict[int, int]) -> None:
    """undo on a host that wrote a part of them gives all back; it waits until the lease of a dead one ends."""
    until(lambda: host("undo", "--apply", "--yes", check=False).rc == 0, "undo has the lease")
    assert {job: nices()[job] for job in own} == own
