"""All tables of the first release.

Revision 0001.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

key = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
long_text = sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql")
mysql_options: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_engine": "InnoDB"}
TABLES = (
    "actions", "carries", "chores", "completions", "cycles", "outside_changes", "priority_overrides",
    "run_ends", "run_marks", "run_starts", "services", "operations", "placements", "leader", "shared_lines",
)


# Over 30 lines: one statement for each table of the schema.
def upgrade() -> None:
    op.create_table(
        "actions",
        sa.Column("id", key, autoincrement=True, nullable=False),
        sa.Column("cycle_id", key, nullable=False),
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
        **mysql_options,
    )
    op.create_index(op.f("ix_actions_cycle_id"), "actions", ["cycle_id"])
    op.create_index(op.f("ix_actions_job_id"), "actions", ["job_id"])
    op.create_table(
        "carries",
        sa.Column("cycle_id", key, autoincrement=False, nullable=False),
        sa.Column("policy", sa.String(length=100), nullable=False),
        sa.Column("carry", long_text, nullable=False),
        sa.PrimaryKeyConstraint("cycle_id", name=op.f("pk_carries")),
        **mysql_options,
    )
    op.create_table(
        "chores",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("done_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_chores")),
        **mysql_options,
    )
    op.create_table(
        "completions",
        sa.Column("id", key, autoincrement=True, nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("first_submit_s", sa.Double(), nullable=False),
        sa.Column("end_s", sa.Double(), nullable=False),
        sa.Column("executed_s", sa.Double(), nullable=False),
        sa.Column("gpu_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_completions")),
        **mysql_options,
    )
    op.create_index(op.f("ix_completions_end_s"), "completions", ["end_s"])
    op.create_index(op.f("ix_completions_job_id"), "completions", ["job_id"])
    op.create_table(
        "cycles",
        sa.Column("id", key, autoincrement=True, nullable=False),
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
        **mysql_options,
    )
    op.create_index(op.f("ix_cycles_now_s"), "cycles", ["now_s"])
    op.create_table(
        "outside_changes",
        sa.Column("id", key, autoincrement=True, nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("first_submit_s", sa.Double(), nullable=False),
        sa.Column("field", sa.String(length=32), nullable=False),
        sa.Column("expected", sa.BigInteger(), nullable=False),
        sa.Column("found", sa.BigInteger(), nullable=False),
        sa.Column("base", sa.BigInteger(), nullable=False),
        sa.Column("seen_s", sa.Double(), nullable=False),
        sa.Column("backoff_until_s", sa.Double(), nullable=False),
        sa.Column("cause", sa.String(length=500), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outside_changes")),
        **mysql_options,
    )
    op.create_index(op.f("ix_outside_changes_job_id"), "outside_changes", ["job_id"])
    op.create_index(op.f("ix_outside_changes_seen_s"), "outside_changes", ["seen_s"])
    op.create_table(
        "priority_overrides",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("field", sa.String(length=32), nullable=False),
        sa.Column("submit_s", sa.Double(), nullable=False),
        sa.Column("restarts", sa.BigInteger(), nullable=False),
        sa.Column("base", sa.BigInteger(), nullable=False),
        sa.Column("earlier", sa.BigInteger(), nullable=False),
        sa.Column("sent", sa.BigInteger(), nullable=False),
        sa.Column("sure", sa.Boolean(), nullable=False),
        sa.Column("abandoned", sa.Boolean(), nullable=False),
        sa.Column("backoff_until_s", sa.Double(), nullable=False),
        sa.Column("backoffs", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_priority_overrides")),
        **mysql_options,
    )
    op.create_table(
        "run_ends",
        sa.Column("id", key, autoincrement=True, nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("first_submit_s", sa.Double(), nullable=False),
        sa.Column("run", sa.BigInteger(), nullable=False),
        sa.Column("start_s", sa.Double(), nullable=False),
        sa.Column("end_s", sa.Double(), nullable=False),
        sa.Column("executed_s", sa.Double(), nullable=False),
        sa.Column("gpu_s", sa.Double(), nullable=False),
        sa.Column("source", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_ends")),
        **mysql_options,
    )
    op.create_index(op.f("ix_run_ends_end_s"), "run_ends", ["end_s"])
    op.create_index(op.f("ix_run_ends_job_id"), "run_ends", ["job_id"])
    op.create_table(
        "run_marks",
        sa.Column("id", key, autoincrement=True, nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("first_submit_s", sa.Double(), nullable=False),
        sa.Column("run", sa.BigInteger(), nullable=False),
        sa.Column("seen_s", sa.Double(), nullable=False),
        sa.Column("executed_s", sa.Double(), nullable=False),
        sa.Column("gpu_s", sa.Double(), nullable=False),
        sa.Column("gpus", sa.Double(), nullable=False),
        sa.Column("suspended_s", sa.Double(), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_marks")),
        **mysql_options,
    )
    op.create_index(op.f("ix_run_marks_job_id"), "run_marks", ["job_id"])
    op.create_index(op.f("ix_run_marks_seen_s"), "run_marks", ["seen_s"])
    op.create_table(
        "run_starts",
        sa.Column("id", key, autoincrement=True, nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("first_submit_s", sa.Double(), nullable=False),
        sa.Column("run", sa.BigInteger(), nullable=False),
        sa.Column("start_s", sa.Double(), nullable=False),
        sa.Column("gpus", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_starts")),
        **mysql_options,
    )
    op.create_index(op.f("ix_run_starts_job_id"), "run_starts", ["job_id"])
    op.create_index(op.f("ix_run_starts_start_s"), "run_starts", ["start_s"])
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
        sa.Column("run_gpus", sa.Double(), nullable=False),
        sa.Column("mark_executed_s", sa.Double(), nullable=False),
        sa.Column("mark_gpu_s", sa.Double(), nullable=False),
        sa.Column("suspended_s", sa.Double(), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("missing", sa.BigInteger(), nullable=False),
        sa.Column("asks", sa.BigInteger(), nullable=False),
        sa.Column("gone_s", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_services")),
        **mysql_options,
    )
    op.create_table(
        "operations",
        sa.Column("id", key, autoincrement=True, nullable=False),
        sa.Column("seen_s", sa.Double(), nullable=False),
        sa.Column("operation", sa.String(length=64), nullable=False),
        sa.Column("purpose", sa.String(length=32), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("first_submit_s", sa.Double(), nullable=False),
        sa.Column("user", sa.String(length=100), nullable=False),
        sa.Column("gpus", sa.BigInteger(), nullable=False),
        sa.Column("nodes", long_text, nullable=False),
        sa.Column("stage", sa.String(length=32), nullable=False),
        sa.Column("note", sa.String(length=500), nullable=False),
        sa.Column("victims", sa.BigInteger(), nullable=False),
        sa.Column("lost_gpu_s", sa.Double(), nullable=False),
        sa.Column("idle_gpu_s", sa.Double(), nullable=False),
        sa.Column("dry_run", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_operations")),
        **mysql_options,
    )
    op.create_index(op.f("ix_operations_job_id"), "operations", ["job_id"])
    op.create_index(op.f("ix_operations_seen_s"), "operations", ["seen_s"])
    op.create_table(
        "placements",
        sa.Column("id", key, autoincrement=True, nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("first_submit_s", sa.Double(), nullable=False),
        sa.Column("start_s", sa.Double(), nullable=False),
        sa.Column("nodes", sa.String(length=500), nullable=False),
        sa.Column("gpus", sa.BigInteger(), nullable=False),
        sa.Column("got_gb_per_s", sa.Double(), nullable=True),
        sa.Column("best_gb_per_s", sa.Double(), nullable=True),
        sa.Column("ratio", sa.Double(), nullable=False),
        sa.Column("pinned", sa.Boolean(), nullable=False),
        sa.Column("note", sa.String(length=500), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_placements")),
        **mysql_options,
    )
    op.create_index(op.f("ix_placements_job_id"), "placements", ["job_id"])
    op.create_index(op.f("ix_placements_start_s"), "placements", ["start_s"])
    leader = op.create_table(
        "leader",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("holder", sa.String(length=200), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("ends_s", sa.Double(), nullable=False),
        sa.Column("lease_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leader")),
        **mysql_options,
    )
    op.bulk_insert(leader, [{"name": "leader", "holder": "", "term": 0, "ends_s": 0.0, "lease_s": 0.0}])
    op.create_table(
        "shared_lines",
        sa.Column("id", key, autoincrement=True, nullable=False),
        sa.Column("file", sa.String(length=32), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.Column("text", long_text, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_shared_lines")),
        **mysql_options,
    )
    op.create_index(op.f("ix_shared_lines_file"), "shared_lines", ["file"])


def downgrade() -> None:
    for table in TABLES:
        op.drop_table(table)
