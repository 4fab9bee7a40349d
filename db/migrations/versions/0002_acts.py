"""What became of preemptions and promises.

Revision 0002, follows 0001.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "acts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("seen_s", sa.Double(), nullable=False),
        sa.Column("act", sa.String(length=64), nullable=False),
        sa.Column("purpose", sa.String(length=32), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("first_submit_s", sa.Double(), nullable=False),
        sa.Column("user", sa.String(length=100), nullable=False),
        sa.Column("gpus", sa.BigInteger(), nullable=False),
        sa.Column(
            "nodes",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=False,
        ),
        sa.Column("stage", sa.String(length=32), nullable=False),
        sa.Column("note", sa.String(length=500), nullable=False),
        sa.Column("victims", sa.BigInteger(), nullable=False),
        sa.Column("lost_gpu_s", sa.Double(), nullable=False),
        sa.Column("idle_gpu_s", sa.Double(), nullable=False),
        sa.Column("dry_run", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_acts")),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("acts", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_acts_job_id"), ["job_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_acts_seen_s"), ["seen_s"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("acts", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_acts_seen_s"))
        batch_op.drop_index(batch_op.f("ix_acts_job_id"))

    op.drop_table("acts")
