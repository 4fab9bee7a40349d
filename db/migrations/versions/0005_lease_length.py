"""How long the leader's lease lasts, so that one that ends later than that is told from a clock set back.

Revision 0005, follows 0004.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    names = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("leader")}
    if "lease_s" in names:  # MariaDB had added it when an earlier try was cut short
        return
    # What a leader before this schema had is not known: the longest that leader.lease_s may be, until it renews.
    column: sa.Column[float] = sa.Column("lease_s", sa.Double(), server_default="3600", nullable=False)
    with op.batch_alter_table("leader", schema=None) as batch_op:
        batch_op.add_column(column)


def downgrade() -> None:
    with op.batch_alter_table("leader", schema=None) as batch_op:
        batch_op.drop_column("lease_s")
