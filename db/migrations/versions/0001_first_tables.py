"""The first tables.

Revision 0001.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "actions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("cycle_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("first_submit_s", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("old", sa.BigInteger(), nullable=True),
        sa.Column("new", sa.BigInteger(), nullable=True),
        sa.Column("base", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.String(length=500), nullable=False),
        sa.Column("outcome", sa.String(length=32), nullable=False),
        sa.Column("message", sa.String(length=500), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_actions")),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("actions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_actions_cycle_id"), ["cycle_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_actions_job_id"), ["job_id"], unique=False)

    op.create_table(
        "carries",
        sa.Column(
            "cycle_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("policy", sa.String(length=100), nullable=False),
        sa.Column(
            "carry",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("cycle_id", name=op.f("pk_carries")),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    op.create_table(
        "chores",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("done_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_chores")),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    op.create_table(
        "completions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("first_submit_s", sa.Double(), nullable=False),
        sa.Column("end_s", sa.Double(), nullable=False),
        sa.Column("executed_s", sa.Double(), nullable=False),
        sa.Column("gpu_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_completions")),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("completions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_completions_end_s"), ["end_s"], unique=False)
        batch_op.create_index(batch_op.f("ix_completions_job_id"), ["job_id"], unique=False)

    op.create_table(
        "cycles",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("now_s", sa.Double(), nullable=False),
        sa.Column("recorded_s", sa.Double(), nullable=False),
        sa.Column("duration_s", sa.Double(), nullable=False),
        sa.Column("digest", sa.String(length=32), nullable=False),
        sa.Column("policy", sa.String(length=100), nullable=False),
        sa.Column("jobs", sa.BigInteger(), nullable=False),
        sa.Column("planned", sa.BigInteger(), nullable=False),
        sa.Column("written", sa.BigInteger(), nullable=False),
        sa.Column("refused", sa.BigInteger(), nullable=False),
        sa.Column("deferred", sa.BigInteger(), nullable=False),
        sa.Column("dry_run", sa.Boolean(), nullable=False),
        sa.Column("stopped", sa.String(length=500), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cycles")),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("cycles", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_cycles_now_s"), ["now_s"], unique=False)

    op.create_table(
        "lever_changes",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("first_submit_s", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("expected", sa.BigInteger(), nullable=False),
        sa.Column("found", sa.BigInteger(), nullable=False),
        sa.Column("base", sa.BigInteger(), nullable=False),
        sa.Column("seen_s", sa.Double(), nullable=False),
        sa.Column("backoff_until_s", sa.Double(), nullable=False),
        sa.Column("cause", sa.String(length=500), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lever_changes")),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("lever_changes", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_lever_changes_job_id"), ["job_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_lever_changes_seen_s"), ["seen_s"], unique=False)

    op.create_table(
        "levers",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("submit_s", sa.Double(), nullable=False),
        sa.Column("restarts", sa.BigInteger(), nullable=False),
        sa.Column("base", sa.BigInteger(), nullable=False),
        sa.Column("old", sa.BigInteger(), nullable=False),
        sa.Column("new", sa.BigInteger(), nullable=False),
        sa.Column("sure", sa.Boolean(), nullable=False),
        sa.Column("written", sa.Boolean(), nullable=False),
        sa.Column("backoff_until_s", sa.Double(), nullable=False),
        sa.Column("backoffs", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_levers")),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    op.create_table(
        "run_ends",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("first_submit_s", sa.Double(), nullable=False),
        sa.Column("run", sa.BigInteger(), nullable=False),
        sa.Column("start_s", sa.Double(), nullable=False),
        sa.Column("end_s", sa.Double(), nullable=False),
        sa.Column("executed_s", sa.Double(), nullable=False),
        sa.Column("gpu_s", sa.Double(), nullable=False),
        sa.Column("source", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_ends")),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("run_ends", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_run_ends_end_s"), ["end_s"], unique=False)
        batch_op.create_index(batch_op.f("ix_run_ends_job_id"), ["job_id"], unique=False)

    op.create_table(
        "run_marks",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("first_submit_s", sa.Double(), nullable=False),
        sa.Column("run", sa.BigInteger(), nullable=False),
        sa.Column("seen_s", sa.Double(), nullable=False),
        sa.Column("executed_s", sa.Double(), nullable=False),
        sa.Column("gpu_s", sa.Double(), nullable=False),
        sa.Column("gpus", sa.BigInteger(), nullable=False),
        sa.Column("suspended_s", sa.Double(), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_marks")),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("run_marks", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_run_marks_job_id"), ["job_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_run_marks_seen_s"), ["seen_s"], unique=False)

    op.create_table(
        "run_starts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("first_submit_s", sa.Double(), nullable=False),
        sa.Column("run", sa.BigInteger(), nullable=False),
        sa.Column("start_s", sa.Double(), nullable=False),
        sa.Column("gpus", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_starts")),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("run_starts", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_run_starts_job_id"), ["job_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_run_starts_start_s"), ["start_s"], unique=False)

    op.create_table(
        "services",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("first_submit_s", sa.Double(), nullable=False),
        sa.Column("submit_s", sa.Double(), nullable=False),
        sa.Column("restarts", sa.BigInteger(), nullable=False),
        sa.Column("executed_s", sa.Double(), nullable=False),
        sa.Column("gpu_s", sa.Double(), nullable=False),
        sa.Column("runs", sa.BigInteger(), nullable=False),
        sa.Column("last_end_s", sa.Double(), nullable=True),
        sa.Column("run", sa.BigInteger(), nullable=False),
        sa.Column("run_start_s", sa.Double(), nullable=True),
        sa.Column("run_gpus", sa.BigInteger(), nullable=False),
        sa.Column("mark_executed_s", sa.Double(), nullable=False),
        sa.Column("mark_gpu_s", sa.Double(), nullable=False),
        sa.Column("suspended_s", sa.Double(), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("missing", sa.BigInteger(), nullable=False),
        sa.Column("asks", sa.BigInteger(), nullable=False),
        sa.Column("gone_s", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_services")),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )


def downgrade() -> None:
    op.drop_table("services")
    with op.batch_alter_table("run_starts", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_run_starts_start_s"))
        batch_op.drop_index(batch_op.f("ix_run_starts_job_id"))

    op.drop_table("run_starts")
    with op.batch_alter_table("run_marks", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_run_marks_seen_s"))
        batch_op.drop_index(batch_op.f("ix_run_marks_job_id"))

    op.drop_table("run_marks")
    with op.batch_alter_table("run_ends", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_run_ends_job_id"))
        batch_op.drop_index(batch_op.f("ix_run_ends_end_s"))

    op.drop_table("run_ends")
    op.drop_table("levers")
    with op.batch_alter_table("lever_changes", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_lever_changes_seen_s"))
        batch_op.drop_index(batch_op.f("ix_lever_changes_job_id"))

    op.drop_table("lever_changes")
    with op.batch_alter_table("cycles", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_cycles_now_s"))

    op.drop_table("cycles")
    with op.batch_alter_table("completions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_completions_job_id"))
        batch_op.drop_index(batch_op.f("ix_completions_end_s"))

    op.drop_table("completions")
    op.drop_table("chores")
    op.drop_table("carries")
    with op.batch_alter_table("actions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_actions_job_id"))
        batch_op.drop_index(batch_op.f("ix_actions_cycle_id"))

    op.drop_table("actions")
