"""The ledger's database as cycles use it: SQL that SQLite, MariaDB and PostgreSQL all read, with :name for a value.

SQLAlchemy is not imported here. Its own implementation is in database.py.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from slurmsched.errors import LedgerError

BUSY_S = 5  # a database locked by another process is waited for this long [s]


class LedgerConnection(Protocol):
    """One connection. Its rows are tuples as the driver gives them."""

    def query(self, sql: str, **values: Any) -> list[tuple[Any, ...]]: ...
    def execute(self, sql: str, **values: Any) -> None: ...
    def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None: ...

    def insert_counted(self, table: str, row: Mapping[str, Any]) -> int:
        """Append a row to a table that counts its rows; the row's id."""
        ...


class LedgerDatabase(Protocol):
    """A database that has the ledger's schema."""

    def connect(self) -> AbstractContextManager[LedgerConnection]:
        """A connection for reading."""
        ...

    def begin(self, *, fenced: bool = False) -> AbstractContextManager[LedgerConnection]:
        """A transaction, committed after the body. fenced: only while this host leads, where several may write."""
        ...

    def errors(self) -> AbstractContextManager[None]:
        """Errors of the database leave the body as LedgerError: what, where, what to do."""
        ...

    def check_writable(self) -> None:
        """See that a write would begin, and into the file of that name. Nothing is written. Raises LedgerError."""
        ...

    def close(self) -> None: ...


class SqliteFile:
    """A ledger in a SQLite file, which is not made. Implements LedgerDatabase."""

    def __init__(self, path: str, read_only: bool = False, patience_s: float | None = None) -> None:
        self._path, self._read_only = path, read_only
        self._patience_s = min(BUSY_S if patience_s is None else patience_s, BUSY_S)
        self._opened: tuple[SqliteConnection, tuple[int, int] | None] | None = None

    @contextmanager
    def connect(self) -> Iterator[SqliteConnection]:
        """A connection for reading."""
        yield self._connection()[0]

    @contextmanager
    def begin(self, *, fenced: bool = False) -> Iterator[SqliteConnection]:
        """A transaction, committed after the body. fenced: nothing differs, as only this host uses the file."""
        connection, _ = self._connection()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            connection.roll_back()
            raise

    @contextmanager
    def errors(self) -> Iterator[None]:
        """As LedgerDatabase.errors."""
        try:
            yield
        except sqlite3.Error as error:
            cause = (str(error).splitlines() or [type(error).__name__])[0]
            raise LedgerError(f"ledger sqlite:///{self._path}: {cause}{advice(cause)}") from error

    def check_writable(self) -> None:
        """SQLite has one writer, and goes on writing into a file that was removed. Raises LedgerError."""
        with self.errors():
            connection, opened = self._connection()
            if opened != file_identity(self._path):
                raise LedgerError(f"ledger sqlite:///{self._path}: {REMOVED}")
            connection.execute("BEGIN IMMEDIATE")
            connection.roll_back()

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            self._opened[0].close()
            self._opened = None

    def _connection(self) -> tuple[SqliteConnection, tuple[int, int] | None]:
        """The connection, and which file it is of."""
        if self._opened is None:
            mode = "ro" if self._read_only else "rw"
            link = sqlite3.connect(f"file:{self._path}?mode={mode}", timeout=self._patience_s, isolation_level=None,
                                   check_same_thread=False, uri=True)  # fmt: skip
            self._opened = SqliteConnection(link), file_identity(self._path)
            if not self._read_only:
                set_pragmas(link)
        return self._opened


class SqliteConnection:
    """Implements LedgerConnection by Python's driver."""

    def __init__(self, link: sqlite3.Connection) -> None:
        self.link = link

    def query(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        """The rows that the statement finds."""
        return self.link.execute(sql, values).fetchall()

    def execute(self, sql: str, **values: Any) -> None:
        """Run a statement that gives no rows."""
        self.link.execute(sql, values)

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append these rows, which all have the same columns."""
        if rows:
            self.link.executemany(_insertion(table, rows[0]), rows)

    def insert_counted(self, table: str, row: Mapping[str, Any]) -> int:
        """Append a row; its id."""
        return int(self.link.execute(_insertion(table, row), row).lastrowid or 0)

    def roll_back(self) -> None:
        """End the transaction without a change; SQLite may have done so itself."""
        if self.link.in_transaction:
            self.link.execute("ROLLBACK")

    def close(self) -> None:
        """Close it."""
        self.link.close()


def _insertion(table: str, columns: Mapping[str, Any]) -> str:
    names = ", ".join(f'"{name}"' for name in columns)
    return f"INSERT INTO {table} ({names}) VALUES ({', '.join(f':{name}' for name in columns)})"


class NoLedger:
    """In place of a ledger that cannot be read: an empty one. Implements LedgerDatabase, and raises LedgerError for
    writes."""

    @contextmanager
    def connect(self) -> Iterator[LedgerConnection]:
        """A connection that finds nothing."""
        yield _NothingFound()

    def begin(self, *, fenced: bool = False) -> AbstractContextManager[LedgerConnection]:
        """Raises LedgerError."""
        raise LedgerError(NO_LEDGER)

    def errors(self) -> AbstractContextManager[None]:
        """Nothing can fail."""
        return nullcontext()

    def check_writable(self) -> None:
        """Raises LedgerError."""
        raise LedgerError(NO_LEDGER)

    def close(self) -> None:
        """Nothing is open."""


class _NothingFound:
    """Implements LedgerConnection for reading."""

    def query(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        return []

    def execute(self, sql: str, **values: Any) -> None:
        raise LedgerError(NO_LEDGER)

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        raise LedgerError(NO_LEDGER)

    def insert_counted(self, table: str, row: Mapping[str, Any]) -> int:
        raise LedgerError(NO_LEDGER)


# Of SQLite and servers alike.

NO_LEDGER = "there is no ledger to write to"
REMOVED = "its file was removed or replaced while it was open; restart slurmsched"


def set_pragmas(connection: Any) -> None:
    """Prepare a new connection of SQLite for writing."""
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_S * 1000}")
    cursor.execute("PRAGMA journal_mode = WAL")
    # With WAL a power cut may cost the last cycles but never the file; the journal, which is synced, has them.
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.close()


def file_identity(path: str) -> tuple[int, int] | None:
    """Device and number of a file; None where there is none."""
    try:
        stat = os.stat(path)  # noqa: PTH116 - no Path for a name that may be empty
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def advice(cause: str) -> str:
    """What to do about this error of a database, after "; "; "" where nothing is known."""
    text = cause.lower()
    for sign, remedy in (
        ("locked", "another process holds it; the next cycle tries again"),
        ("lock wait", "another process holds it; the next cycle tries again"),
        ("is full", "free some space; nothing is lost, the next cycle tries again"),
        ("unable to open", "see that the folder exists and that slurmsched may write there"),
        ("readonly", "see that slurmsched may write the file and its folder"),
        ("no such table", "run `slurmsched db upgrade`"),
        ("malformed", "move the file away and start anew: levers are in the journal, runs in sacct"),
        ("certificate", "see that ledger.url names the CA of the server's certificate, and the host that it is for"),
        ("connect", "see that the database server runs and that ledger.url is right"),
    ):
        if sign in text:
            return f"; {remedy}"
    return ""
