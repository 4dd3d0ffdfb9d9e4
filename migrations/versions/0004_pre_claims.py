"""Claimed keys.

Revision 0004_pre_claims, after 0003_pre_versions. Safe while older code runs: it adds a table that older code doesn't use.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0004_pre_claims"
down_revision: str | None = "0003_pre_versions"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Apply this revision."""
    op.create_table(
        "moor_claim",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("claim_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("done_at", sa.BigInteger(), nullable=True),
        sa.Column("done_run", sa.Text(), nullable=True),
        sa.Column("value", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index(
        "moor_claim_done",
        "moor_claim",
        ["done_run"],
        unique=False,
        sqlite_where=sa.text("done_run IS NOT NULL"),
        postgresql_where=sa.text("done_run IS NOT NULL"),
    )


def downgrade() -> None:
    """Take this revision back."""
    op.drop_index("moor_claim_done", table_name="moor_claim")
    op.drop_table("moor_claim")
