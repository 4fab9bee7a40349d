"""Run by Alembic: migrates the connection that `slurmsched.db.database.migrate` hands over."""

from typing import Any

import sqlalchemy as sa
from alembic import context
from sqlalchemy.dialects import mysql

from slurmsched.db import schema


def differs(_: Any, __: Any, ___: Any, found: Any, wanted: Any) -> bool | None:
    """Whether a column's type must change; None leaves it to Alembic, which takes TEXT(4294967295) for no LONGTEXT."""
    return False if isinstance(found, mysql.LONGTEXT) and isinstance(wanted, sa.Text) else None


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=schema.metadata,
    compare_type=differs,
    render_as_batch=True,  # SQLite alters a table only by copying it
)
with context.begin_transaction():
    context.run_migrations()
