"""Opens the ledger's database as cycles use it: a SQLite file without SQLAlchemy.

Importing SQLAlchemy is a third of all imports of a cold tick. It is loaded for servers, for a file that has no schema
yet, and for options in the URL.
"""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING

from slurmsched.db.ledger_columns import HEAD
from slurmsched.db.ledger_database import LedgerDatabase, SqliteFile

if TYPE_CHECKING:
    from slurmsched.db.leader_lease import LeaderLease

_PLAIN_FILE = re.compile(r"sqlite:///([\w/.+-]+)")  # nothing that a URL would quote, and no options


def open_database(
    url: str,
    *,
    read_only: bool = False,
    patience_s: float | None = None,
    still_s: float | None = None,
    lease: LeaderLease | None = None,
) -> LedgerDatabase:
    """The ledger's database at this URL; its schema is made where there is none, unless read_only.

    patience_s, still_s: as of database.open_engine. lease: without it no fenced transaction commits; None = this host
    is the only one.
    Raises LedgerError.
    """
    file = _PLAIN_FILE.fullmatch(url)
    if file and lease is None and (found := _with_schema(SqliteFile(file[1], read_only, patience_s))):
        return found
    from slurmsched.db import database

    engine = database.open_engine(url, read_only=read_only, patience_s=patience_s, still_s=still_s)
    try:
        (database.check_schema if read_only else database.prepare_schema)(engine)
    except BaseException:
        engine.dispose()
        raise
    return database.EngineDatabase(engine, lease)


def _with_schema(file: SqliteFile) -> SqliteFile | None:
    """The file, if it can be opened and has our schema; whatever else is wrong with it is found by SQLAlchemy's way."""
    try:
        with file.connect() as connection:
            if connection.query("SELECT version_num FROM alembic_version") == [(HEAD,)]:
                return file
    except sqlite3.Error:
        pass
    file.close()
    return None
