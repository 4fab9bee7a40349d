"""Run by Alembic: migrates the connection that `slurmsched.db.engine.migrate` hands over."""

from alembic import context

from slurmsched.db import schema

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=schema.metadata,
    compare_type=True,
    render_as_batch=True,  # SQLite alters a table only by copying it
)
with context.begin_transaction():
    context.run_migrations()
