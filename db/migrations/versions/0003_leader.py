"""The leader lease, and the lines that all hosts share.

Revision 0003, follows 0002.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    leader = op.create_table(
        "leader",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("holder", sa.String(length=200), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("ends_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leader")),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    op.bulk_insert(leader, [{"name": "leader", "holder": "", "term": 0, "ends_s": 0.0}])
    op.create_table(
        "shared_lines",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("file", sa.String(length=32), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.Column(
            "text",
            sa.Text().with_variant(mysql.LONGTEXT(), "mariadb").with_variant(mysql.LONGTEXT(), "mysql"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_shared_lines")),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    with op.batch_alter_table("shared_lines", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_shared_lines_file"), ["file"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("shared_lines", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_shared_lines_file"))

    op.drop_table("shared_lines")
    op.drop_table("leader")
