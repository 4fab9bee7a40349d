"""What jobs got at their start, beside the best they could have had.

Revision 0004, follows 0003.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "placements",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
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
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("placements", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_placements_job_id"), ["job_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_placements_start_s"), ["start_s"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("placements", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_placements_start_s"))
        batch_op.drop_index(batch_op.f("ix_placements_job_id"))

    op.drop_table("placements")
