"""Lines that every host sees: the journal and the operations of whoever leads, in the ledger's database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from slurmsched.db import database as engines
from slurmsched.db import schema
from slurmsched.db.leader_lease import LeaderLease

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
