"""What the leader lease must do on every database. A test class per database gives `ledger_url` (an empty one)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from slurmsched.db import database as engines
from slurmsched.db import schema
from slurmsched.db.leader_lease import BEYOND_S, LeaderLease, SharedLines
from slurmsched.db.operation_log import OperationLog
from slurmsched.db.override_log import OverrideLog
from slurmsched.errors import NotLeadingError
from slurmsched.model import NodeWait, Operation, OperationStage, Override, Purpose, SetNice, Victim

LEASE_S = 2.0
LONG_S = 60.0  # of hosts whose clocks are moved by hand


class Host:
    """One of the hosts. ahead_s: what its own clock shows more than it should, as if it had been stopped so long."""

    def __init__(self, url: str, name: str, folder: Path, lease_s: float) -> None:
        self.engine = engines.open_engine(url, patience_s=1.0, still_s=2.0)
        self.ahead_s = 0.0
        self.lease = LeaderLease(self.engine, name, lease_s, clock=lambda: time.monotonic() + self.ahead_s)
        self.shared = SharedLines(self.engine, self.lease, "journal", clock=lambda: 50.0)
        self.journal = OverrideLog(folder / name / "journal.jsonl", shared=self.shared)
        self.operations = OperationLog(
            folder / name / "journal.jsonl", shared=SharedLines(self.engine, self.lease, "operations")
        )


def operation(stage: OperationStage = OperationStage.BEGUN) -> Operation:
    return Operation("7-1", Purpose.PREEMPT, 7, 100.0, "bob", "n1", 600.0, 1_000.0, stage=stage)


def write(job_id: int, new: int) -> list[SetNice]:
    return [SetNice(job_id, 100.0, "queue 0", 0, new, 0)]


def set_back(host: Host, seconds: float) -> None:
    """As if the database's clock was set back by so much: the lease ends so much later."""
    with host.engine.begin() as connection:
        connection.execute(sa.update(schema.leader).values(ends_s=schema.leader.c.ends_s + seconds))


def set_ahead(hosts: Sequence[Host], seconds: float) -> None:
    """As if the database's clock was set ahead by so much."""
    for host in hosts:
        host.lease._now = host.lease._now + seconds


class LeaseSuite:
    """See the module."""

    @pytest.fixture
    def host(self, ledger_url: str, tmp_path: Path) -> Iterator[Callable[..., Host]]:
        engines.upgrade_schema(ledger_url)
        made: list[Host] = []

        def start(name: str, lease_s: float = LEASE_S) -> Host:
            made.append(Host(ledger_url, name, tmp_path, lease_s))
            return made[-1]

        yield start
        for one in made:
            one.lease.close()

    def end(self, host: Host) -> None:
        """Let the lease of whoever leads run out, without waiting for it."""
        with host.engine.begin() as connection:
            connection.execute(sa.update(schema.leader).values(ends_s=1.0))

    def test_take__one_of_two(self, host) -> None:
        """The first has it, the second is told who, and the term counts takings."""
        a, b = host("a"), host("b")
        assert (a.lease.take(), b.lease.take(), a.lease.take()) == (True, False, True)
        leader = b.lease.leader()
        assert (leader.name, leader.term, a.lease.term, b.lease.term) == ("a", 1, 1, 0)
        assert 0 < leader.remaining_s <= LEASE_S

    def test_take__the_end_is_by_the_clock_of_the_database(self, host) -> None:
        """A lease that nobody renews is another's after lease_s, not before."""
        a, b = host("a"), host("b")
        begun_s = time.monotonic()
        assert a.lease.take()
        while not b.lease.take():
            time.sleep(0.05)
        assert time.monotonic() - begun_s >= LEASE_S
        assert b.lease.term == 2

    @pytest.mark.parametrize("back_s", [20.0, 600.0, 7_200.0, 86_400.0])
    def test_take__the_clock_of_the_database_set_back(self, host, back_s) -> None:
        """However far, and the leader is dead: another one leads after lease_s, not before, also a process that looks
        once only. A leader that lives goes on meanwhile, and one whose lease is not due yet too."""
        a, b = host("a"), host("b")
        a.lease.take()
        set_back(a, back_s)
        assert b.lease.leader().remaining_s > back_s / 2  # a busy machine takes its time
        assert not host("c").lease.take()
        assert 0 < b.lease.leader().remaining_s <= LEASE_S
        begun_s = time.monotonic()
        assert (b.lease.take(), a.lease.take(), a.lease.term) == (False, True, 1)
        while not b.lease.take():
            time.sleep(0.05)
        assert time.monotonic() - begun_s >= LEASE_S
        with pytest.raises(NotLeadingError):
            a.lease.fence()

    def test_take__the_clock_of_the_database_set_ahead(self, host) -> None:
        """Who has seen the lease waits for its end by its own clock, though it was renewed since, so that a leader that
        lives goes on, and takes it then."""
        a, b = host("a", LONG_S), host("b", LONG_S)
        a.lease.take()
        b.lease.take()
        a.lease.fence()
        set_ahead([a, b], 7_200.0)
        assert (b.lease.leader().remaining_s < 0, b.lease.take()) == (True, False)
        a.lease.fence()
        assert (a.lease.term, b.lease.take()) == (1, False)
        set_ahead([a, b], 7_200.0)
        b.ahead_s = LONG_S
        assert (b.lease.take(), b.lease.term) == (True, 2)

    def test_take__given_back_under_a_clock_set_ahead(self, host) -> None:
        """Nobody waits for the end of a lease that was given back, whatever the clocks say."""
        a, b = host("a"), host("b")
        a.lease.take()
        b.lease.take()
        set_ahead([a, b], 7_200.0)
        a.lease.release()
        assert b.lease.take()

    @pytest.mark.parametrize("back_s", [0.0, 0.5, 300.0, 7_200.0])
    @pytest.mark.parametrize(("leads_s", "looks_s"), [(3_600.0, 30.0), (30.0, 3_600.0), (60.0, 60.0)])
    def test_take__a_lease_is_cut_to_what_its_leader_goes_by(self, host, leads_s, looks_s, back_s) -> None:
        """lease_s is changed on one host after the other, and the clock is set back just then: the lease lasts as long
        as its leader thinks, whoever looks, so that no leader that lives is replaced."""
        a = host("a")
        leads = LeaderLease(a.engine, "leads", leads_s)
        assert leads.take()
        set_back(a, back_s)
        assert not LeaderLease(a.engine, "looks", looks_s).take()
        assert leads_s - 30 < a.lease.leader().remaining_s <= leads_s + BEYOND_S
        assert 0 < leads.remaining_s < a.lease.leader().remaining_s
        leads.fence()

    def test_take__who_has_a_shorter_lease_waits_for_the_end_of_a_longer_one(self, host) -> None:
        """lease_s is changed on one host first: the leader still goes by its own."""
        a = host("a")
        long, short = LeaderLease(a.engine, "long", 1_800.0), LeaderLease(a.engine, "short", 30.0)
        assert (long.take(), short.take(), short.take()) == (True, False, False)
        assert short.leader().remaining_s > 1_700
        long.keep()
        assert short.leader().name == "long"

    def test_release__another_leads_at_once(self, host) -> None:
        """Nobody waits for the end of a lease that was given back."""
        a, b = host("a"), host("b")
        a.lease.take()
        a.lease.release()
        assert (a.lease.remaining_s, str(b.lease.leader()), b.lease.take()) == (0.0, "no host leads now", True)

    def test_release__not_the_lease_of_another(self, host) -> None:
        """Who lost it gives back nothing."""
        a, b = host("a"), host("b")
        a.lease.take()
        self.end(a)
        b.lease.take()
        a.lease.release()
        assert b.lease.leader().name == "b"

    def test_fence__fails_after_another_took_over(self, host) -> None:
        """A leader that was stopped longer than its lease may write nothing, and knows who leads."""
        a, b = host("a"), host("b")
        a.lease.take()
        self.end(a)
        assert b.lease.take()
        with pytest.raises(NotLeadingError, match=r"a may not write: b leads, term 2"):
            a.lease.fence()
        assert a.lease.remaining_s == 0

    def test_keep__stops_before_the_lease_ends(self, host) -> None:
        """By its own clock, though the database knows nobody else yet: then it asks first."""
        a, b = host("a"), host("b")
        a.lease.take()
        assert 0 < a.lease.remaining_s < LEASE_S
        a.ahead_s = LEASE_S
        assert a.lease.remaining_s == 0
        self.end(a)
        b.lease.take()
        with pytest.raises(NotLeadingError):
            a.lease.keep()

    def test_keep__asks_only_when_it_is_due(self, host) -> None:
        """A fresh lease needs no answer of the database; one half used up is renewed."""
        a = host("a")
        a.lease.take()
        self.end(a)
        a.lease.keep()
        assert a.lease.leader().remaining_s < 0
        a.ahead_s = 0.6 * LEASE_S
        a.lease.keep()
        assert a.lease.leader().remaining_s > 0

    def test_fenced__nothing_of_an_old_term_is_committed(self, host) -> None:
        """What a transaction has done is undone where another has taken over before its end."""
        a, b = host("a"), host("b")
        a.lease.take()
        self.end(a)
        b.lease.take()
        with pytest.raises(NotLeadingError):
            a.journal.intend("c1", write(1, -5))
        assert list(b.shared.read()) == []
        assert not a.journal.path.exists()

    def test_fenced__a_transaction_that_stands_still_keeps_nobody_out(self, host) -> None:
        """The row is locked for the last statement only."""
        a, b = host("a"), host("b")
        a.lease.take()
        with pytest.raises(NotLeadingError), a.lease.fenced():
            self.end(b)
            assert b.lease.take()

    def test_journal__another_host_knows_what_was_meant(self, host) -> None:
        """Whoever takes over reads it, each line with its term; what it settles is not read again."""
        a, b = host("a"), host("b")
        a.lease.take()
        a.journal.intend("c1", write(1, -5))
        a.lease.release()
        b.lease.take()
        assert b.journal.written_s == float("inf")
        (record,) = b.journal.priorities()
        assert (record.job_id, record.values) == (1, (-5,))
        b.journal.settle()
        assert b.journal.written_s == float("-inf")
        b.journal.intend("c2", write(1, -9))
        assert [line["term"] for line in a.journal.lines()] == [1, 1, 2]  # its own file, then what all share

    def test_journal__is_compacted_for_all(self, host) -> None:
        """Lines of jobs that left the queue go from the shared lines too."""
        a = host("a")
        a.lease.take()
        for job_id in (1, 2):
            a.journal.intend("c1", write(job_id, -5))
        a.journal.compact([2])
        assert {line["job_id"] for line in a.journal.lines()} == {2}
        assert len(list(a.shared.read())) == 1

    def test_operations__another_host_knows_what_is_under_way(self, host) -> None:
        """On record before it is sent, not sure until it was; closed operations are forgotten."""
        a, b = host("a"), host("b")
        a.lease.take()
        a.operations.begin([operation()])
        assert [(one.id, one.sure) for one in b.operations.open()] == [("7-1", False)]
        a.operations.sent([operation(OperationStage.REQUEUED)])
        assert [(one.stage, one.sure) for one in b.operations.open()] == [(OperationStage.REQUEUED, True)]
        a.operations.sent([operation(OperationStage.CLOSED)])
        a.operations.compact()
        assert b.operations.open() == ()
        assert not a.operations.path.exists()

    def test_operations__another_host_reads_them_as_they_were(self, host) -> None:
        """A preemption with its victims and a gang reservation with what its nodes wait for, in any script and
        length."""
        a, b = host("a"), host("b")
        a.lease.take()
        takes = replace(
            operation(OperationStage.WARNED), user="zoë\U0001f600", victims=(Victim(8, 90.0, 2, 4, "USR2", 30.0, 12.5),)
        )
        keeps = Operation(
            "9-1",
            Purpose.RESERVE,
            9,
            100.0,
            "bob",
            ",".join(f"n{i}x" for i in range(9_000)),
            600.0,
            1_000.0,
            (),
            5_000.5,
            4_970.5,
            (NodeWait("n2", 13, 5_000.5), NodeWait("n3", 0, 1_000.0)),
            OperationStage.PROMISED,
            1_000.0,
            "x" * 20_000,
            77.25,
            1_060.0,
        )
        a.operations.sent([takes, keeps])
        assert b.operations.open() == (takes, keeps)
        a.operations.compact()
        assert b.operations.open() == (takes, keeps)

    def test_journal__another_host_knows_the_node_lists(self, host) -> None:
        """Of several lines of a job and field the last counts, and none of its own file; a host that leads no more
        writes none."""
        a, b = host("a"), host("b")
        a.lease.take()
        pin = Override(7, 100.0, "node_list", "n[1-4]", "n2", values=("n2",), since_s=1_000.0)
        back = pin.closed("its node is no longer free", abandoned=True)
        a.journal.record([pin, replace(pin, job_id=8)])
        a.lease.release()
        b.lease.take()
        assert list(b.journal.known().values()) == [pin, replace(pin, job_id=8)]
        b.journal.record([back])
        assert a.journal.known()[pin.key] == back
        with pytest.raises(NotLeadingError):
            a.journal.record([pin])
        assert len(list(b.journal.lines())) == 4  # one in its own file
