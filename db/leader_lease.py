"""The leader lease: of all hosts that share a ledger, one writes. A row of the database, with a fencing token.

The journal and the operations of whoever leads are in the database too, so that every host can read them.

The row ends by the database's clock, so hosts need not agree on the time. Each taking counts `term` up; whatever the
leader writes goes through the row of its term, and none of that succeeds once another host has taken over. What is sent
to Slurm, which knows no terms, is held back by the leader's own clock: it stops MARGIN before its lease ends.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from slurmsched.config import Config
from slurmsched.db import database as engines
from slurmsched.db import schema
from slurmsched.db.boot_clock import uptime
from slurmsched.errors import LedgerError, NotLeadingError
from slurmsched.logs import get_logger

log = get_logger()

MARGIN = 0.25  # of the lease: a leader that has not renewed it stops so long before it ends
KEEP = 0.5  # of the lease: so much of it is used up before it is renewed
BEYOND_S = 1.0  # a lease that ends so much later, or earlier, than it should: the database's clock was set
_ROW = "leader"
_CLOCKS = {  # Unix seconds at the begin of the statement, whatever the session's time zone
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) / 1e6",
    "postgresql": "CAST(extract(epoch FROM statement_timestamp()) AS double precision)",
}


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The holder of the lease.

    term: 0 if there was never one.
    remaining_s: until the lease ends [s], 0 or less when it has.
    lease_s: how long it lasts from a renewal on [s]; hosts may differ.
    ends_s: its end by the database's clock [Unix s].
    """

    name: str
    term: int
    remaining_s: float
    lease_s: float
    ends_s: float = 0.0

    def __str__(self) -> str:
        if self.remaining_s <= 0:
            return "no host leads now"
        return f"{self.name} leads, term {self.term}; its lease ends in {self.remaining_s:.0f} s unless renewed"


class LeaderLease:
    """This process's side of it.

    clock: seconds as boot_clock.uptime.

    A process that stops while it holds a lock on the row would keep all others out. Two things prevent that:

    - Only the last statement of a transaction locks the row.
    - The server ends transactions that stand still (engine.open_engine).

    All methods raise LedgerError when the database does not answer.
    """

    def __init__(self, engine: Engine, name: str, lease_s: float, clock: Callable[[], float] = uptime) -> None:
        self._engine, self._clock = engine, clock
        self.name, self.lease_s = name, lease_s
        self._now: sa.ColumnElement[float] = sa.literal_column(_CLOCKS[engine.dialect.name], sa.Double())
        self._term = 0
        self._until_s = float("-inf")
        self._seen: tuple[int, float] | None = None  # term and end of the lease that we saw last
        self._seen_until_s = float("-inf")  # its end by our own clock

    @property
    def term(self) -> int:
        """The term that we lead, or led last; 0 if none yet."""
        return self._term

    @property
    def remaining_s(self) -> float:
        """How long we may still write [s]; 0 if we do not lead."""
        return max(self._until_s - self._clock(), 0.0)

    def take(self) -> bool:
        """Whether this host leads now. It renews its own lease, and takes one that is free."""
        if self._term and self._renewed():
            return True
        self._until_s = float("-inf")
        begun_s, leader = self._clock(), self.leader()
        if leader.remaining_s > leader.lease_s + BEYOND_S:
            self._shorten()
        if leader.remaining_s > 0:
            self._seen = (leader.term, leader.ends_s)
            self._seen_until_s = begun_s + min(leader.remaining_s, leader.lease_s)
        return leader.remaining_s <= 0 and not self._too_early(leader, begun_s) and self._taken()

    def keep(self) -> None:
        """Renew the lease when it is due. Raises NotLeadingError when we do not lead any more."""
        if self.remaining_s < (1 - MARGIN - KEEP) * self.lease_s:
            self.fence()

    def fence(self) -> None:
        """See that our term is still the current one, and renew it. Raises NotLeadingError."""
        if not (self._term and self._renewed()):
            raise self.lost()
        if not self.remaining_s:  # the answer came too late to go by
            raise self.lost()

    @contextmanager
    def fenced(self, engine: Engine | None = None) -> Iterator[Connection]:
        """A transaction that commits only while our term is the current one. Raises NotLeadingError."""
        with engines.ledger_errors(engine or self._engine), (engine or self._engine).begin() as connection:
            yield connection
            begun_s = self._clock()
            if not (self._term and self._renew(connection)):
                raise self.lost()
        self._until_s = begun_s + (1 - MARGIN) * self.lease_s

    def release(self) -> None:
        """Let another lead at once. Nothing happens if we do not lead."""
        self._until_s = float("-inf")
        mine = schema.leader.c.term == self._term
        with engines.ledger_errors(self._engine), self._engine.begin() as connection:
            connection.execute(sa.update(schema.leader).where(mine).values(ends_s=0.0))

    def leader(self) -> LeaseHolder:
        """Who leads, read without a lock."""
        leader = schema.leader
        remaining_s = leader.c.ends_s - self._now
        query = sa.select(leader.c.holder, leader.c.term, remaining_s, leader.c.lease_s, leader.c.ends_s)
        with engines.ledger_errors(self._engine), self._engine.connect() as connection:
            row = connection.execute(query.where(leader.c.name == _ROW)).one_or_none()
        return LeaseHolder(*row) if row else LeaseHolder("", 0, 0.0, self.lease_s)

    def lost(self) -> NotLeadingError:
        """The error of somebody who does not lead (any more), which then is on record here too."""
        self._until_s = float("-inf")
        leader = self.leader()
        return NotLeadingError(f"{self.name} may not write: {leader}", holder=leader.name)

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def _too_early(self, leader: LeaseHolder, now_s: float) -> bool:
        """Whether a lease that has ended lasts longer than that by our own clock, since it was seen last: the
        database's clock was set ahead since, and its leader may not know yet. One that was renewed after we saw it ends
        so much later; of one that was given back, or of another term, nothing is known."""
        if self._seen is None or leader.term != self._seen[0] or leader.ends_s < self._seen[1]:
            return False
        until_s = self._seen_until_s + leader.ends_s - self._seen[1]
        self._seen, self._seen_until_s = (leader.term, leader.ends_s), min(until_s, now_s + leader.lease_s)
        return now_s < self._seen_until_s - min(BEYOND_S, MARGIN * leader.lease_s)

    def _renewed(self) -> bool:
        begun_s = self._clock()
        with engines.ledger_errors(self._engine), self._engine.begin() as connection:
            mine = self._renew(connection)
        self._until_s = begun_s + (1 - MARGIN) * self.lease_s if mine else float("-inf")
        return mine

    def _renew(self, connection: Connection) -> bool:
        return self._set(connection, schema.leader.c.term == self._term)

    def _taken(self) -> bool:
        begun_s, leader = self._clock(), schema.leader
        with engines.ledger_errors(self._engine), self._engine.begin() as connection:
            if not self._set(connection, leader.c.ends_s <= self._now, holder=self.name, term=leader.c.term + 1):
                return False
            term = connection.scalar(sa.select(leader.c.term).where(leader.c.name == _ROW))
        self._term, self._until_s = int(term or 0), begun_s + (1 - MARGIN) * self.lease_s
        return True

    def _shorten(self) -> None:
        """Let a lease that ends later than it lasts end as if renewed now: a leader that lives renews it before."""
        leader = schema.leader
        end_s = self._now + leader.c.lease_s
        late = leader.c.ends_s > end_s + BEYOND_S
        with engines.ledger_errors(self._engine), self._engine.begin() as connection:
            connection.execute(sa.update(leader).where(leader.c.name == _ROW, late).values(ends_s=end_s))

    def _set(self, connection: Connection, condition: sa.ColumnElement[bool], **values: object) -> bool:
        leader = schema.leader
        update = sa.update(leader).where(leader.c.name == _ROW, condition)
        values |= {"ends_s": self._now + self.lease_s, "lease_s": self.lease_s}
        return connection.execute(update.values(**values)).rowcount == 1


# Lines that every host can read: the journal and the operations of whoever leads, in the database.


ROW_BYTES = 1 << 20  # of a rewritten file; servers take rows of 16 MB by default


class SharedLines:
    """One such file. Everybody may read it, only the leader may change it.

    clock: Unix seconds.
    Raises LedgerError when the database does not answer, and NotLeadingError at a change by somebody else.
    """

    def __init__(self, engine: Engine, lease: LeaderLease, file: str, clock: Callable[[], float] = time.time) -> None:
        self._engine, self._lease, self._clock = engine, lease, clock
        self.file = file

    @property
    def term(self) -> int:
        """The term of the lines of this process."""
        return self._lease.term

    @property
    def size(self) -> int:
        """Characters of all lines."""
        table = schema.shared_lines
        query = sa.select(sa.func.coalesce(sa.func.sum(sa.func.length(table.c.text)), 0)).where(self._mine)
        with engines.ledger_errors(self._engine), self._engine.connect() as connection:
            return int(connection.scalar(query) or 0)

    def last(self) -> tuple[int, float]:
        """Term and clock of the newest line; (0, 0.0) if there is none."""
        table = schema.shared_lines
        query = sa.select(table.c.term, table.c.time_s).where(self._mine).order_by(table.c.id.desc()).limit(1)
        with engines.ledger_errors(self._engine), self._engine.connect() as connection:
            row = connection.execute(query).one_or_none()
        return (int(row.term), float(row.time_s)) if row else (0, 0.0)

    def read(self) -> Iterator[bytes]:
        """Every line, oldest first, without its newline."""
        table = schema.shared_lines
        query = sa.select(table.c.text).where(self._mine).order_by(table.c.id)
        with engines.ledger_errors(self._engine), self._engine.connect() as connection:
            texts: Sequence[str] = connection.scalars(query).all()
        for text in texts:
            yield from text.encode().splitlines()

    def append(self, texts: Iterable[bytes]) -> None:
        """Add lines, all or none, while we lead."""
        blob = b"".join(texts)
        if blob:
            with self._lease.fenced(self._engine) as connection:
                self._insert(connection, [blob])

    def replace(self, texts: Iterable[bytes]) -> None:
        """Put these lines in place of all."""
        rows: list[bytes] = []
        for text in texts:
            if rows and len(rows[-1]) < ROW_BYTES:
                rows[-1] += text
            else:
                rows.append(text)
        with self._lease.fenced(self._engine) as connection:
            connection.execute(sa.delete(schema.shared_lines).where(self._mine))
            self._insert(connection, rows)

    @property
    def _mine(self) -> sa.ColumnElement[bool]:
        return schema.shared_lines.c.file == self.file

    def _insert(self, connection: Connection, blobs: Sequence[bytes]) -> None:
        now_s = self._clock()
        rows = [{"file": self.file, "term": self.term, "time_s": now_s, "text": blob.decode()} for blob in blobs]
        if rows:
            connection.execute(sa.insert(schema.shared_lines), rows)


# The lease and the shared lines, as [leader] of the configuration sets them.

PATIENCE = 4  # an answer of the database that takes longer than this part of the lease does not come in time


@dataclass(frozen=True, slots=True)
class LeaderFiles:
    """What the leader and the other hosts share.

    lease: who may write.
    journal, operations: the lines that all hosts share.
    """

    lease: LeaderLease
    journal: SharedLines
    operations: SharedLines

    def close(self) -> None:
        """Let another lead, and give the connections back. A lease that cannot be given back runs out by itself."""
        try:
            if self.lease.remaining_s:
                self.lease.release()
        except LedgerError as error:
            log.warning("leader.not_released", error=str(error))
        finally:
            self.lease.close()


def open_leader_files(config: Config) -> LeaderFiles:
    """As [leader] says. Nothing is connected yet. Raises LedgerError."""
    leader = config.leader
    patience_s = max(leader.lease_s / PATIENCE, 1.0)
    engine = engines.open_engine(config.ledger.address, patience_s=patience_s, still_s=leader.lease_s)
    lease = LeaderLease(engine, leader.name or socket.gethostname(), leader.lease_s)
    return LeaderFiles(lease, *(SharedLines(engine, lease, file) for file in ("journal", "operations")))
