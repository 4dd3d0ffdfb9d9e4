"""Which revisions were applied, which one each worker needs, and workers that have gone.

Revision 0003_pre_versions, after 0002_pre_core. Safe while older code runs: all it adds is optional or has a default.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0003_pre_versions"
down_revision: str | None = "0002_pre_core"
branch_labels: str | None = None
depends_on: str | None = None

BEFORE = ("0001_pre_spine", "0002_pre_core")
"""Applied when there was no table to name them."""


def upgrade() -> None:
    """Apply this revision."""
    op.add_column("moor_worker", sa.Column("revision", sa.Text(), server_default=sa.text("''"), nullable=False))
    op.add_column("moor_worker", sa.Column("gone_at", sa.BigInteger(), nullable=True))
    names = op.create_table("moor_revision", sa.Column("name", sa.Text(), nullable=False), sa.PrimaryKeyConstraint("name"))
    op.bulk_insert(names, [{"name": name} for name in BEFORE])


def downgrade() -> None:
    """Take this revision back."""
    op.drop_table("moor_revision")
    op.drop_column("moor_worker", "gone_at")
    op.drop_column("moor_worker", "revision")
