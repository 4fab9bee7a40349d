"""Migrations where each CREATE TABLE commits: one at a time, and what a killed one has left is dropped first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from slurmsched.db import schema
from slurmsched.errors import LedgerError

WAIT_S = 5  # for another process that migrates [s]
DATABASES = ("mysql", "mariadb")


@contextmanager
def alone(connection: Connection, where: str) -> Iterator[None]:
    """No other process migrates this database during the body. where: which ledger, for people. Raises LedgerError."""
    name = f"slurmsched-{connection.engine.url.database}"[:64]
    if connection.scalar(sa.select(sa.func.get_lock(name, WAIT_S))) != 1:
        raise LedgerError(f"{where}another process makes its tables; try again when it is done")
    try:
        yield
    finally:
        with suppress(sa.exc.SQLAlchemyError):  # its connection is gone, and the lock with it
            connection.scalar(sa.select(sa.func.release_lock(name)))


def clear(connection: Connection, found: str | None, config: Any, where: str) -> None:
    """Drop tables of migrations after `found`, the revision on record: nobody writes before all are there.

    config: Alembic's, the connection not set. Raises LedgerError for a table that holds more than its migration puts
    there, and leaves all.
    """
    names = set(sa.inspect(connection).get_table_names())
    left = {name: rows for name, rows in _made_after(found, config).items() if name in names}
    for name, rows in left.items():
        if _rows(connection, name) > rows:
            cure = "give slurmsched a database of its own, or restore the table alembic_version from a backup"
            raise LedgerError(f"{where}table {name} has rows, but schema {found or 'none'} is on record; {cure}")
    for name in left:
        connection.execute(sa.schema.DropTable(schema.metadata.tables[name]))


def _made_after(revision: str | None, config: Any) -> dict[str, int]:
    """The tables that the migrations after this one make, with the rows that they put there: tried in memory."""
    from alembic import command

    engine = sa.create_engine("sqlite://")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision or "base")
        before = set(sa.inspect(connection).get_table_names())
        command.upgrade(config, "head")
        names = set(schema.metadata.tables) - before
        made = {name: _rows(connection, name) for name in sorted(names)}
    engine.dispose()
    return made


def _rows(connection: Connection, name: str) -> int:
    return connection.scalar(sa.select(sa.func.count()).select_from(sa.table(name))) or 0
