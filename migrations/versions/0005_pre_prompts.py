"""Prompts that several people answer, that are handed on and that share a card; votes by name; the audit.

Revision 0005_pre_prompts, after 0004_pre_claims. Safe while older code runs: all it adds to tables is optional or has a default,
and older code doesn't use the new one.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0005_pre_prompts"
down_revision: str | None = "0004_pre_claims"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Apply this revision."""
    op.add_column("moor_prompt", sa.Column("quorum", sa.BigInteger(), server_default=sa.text("1"), nullable=False))
    op.add_column("moor_prompt", sa.Column("answerers", sa.Text(), server_default=sa.text("'[]'"), nullable=False))
    op.add_column("moor_prompt", sa.Column("asked", sa.Text(), server_default=sa.text("''"), nullable=False))
    op.add_column("moor_prompt", sa.Column("remind_at", sa.BigInteger(), nullable=True))
    op.add_column("moor_prompt", sa.Column("level", sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    op.add_column("moor_prompt", sa.Column("group_id", sa.Text(), nullable=True))
    for name in ("name", "via"):
        op.add_column("moor_vote", sa.Column(name, sa.Text(), server_default=sa.text("''"), nullable=False))
    op.add_column("moor_interaction", sa.Column("place", sa.Text(), server_default=sa.text("''"), nullable=False))
    op.add_column("moor_interaction", sa.Column("override", sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    op.create_table(
        "moor_audit",
        sa.Column("n", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("act", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("prompt_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("requester", sa.Text(), nullable=False),
        sa.Column("asked", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.Column("shown", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=True),
        sa.Column("via", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("option_id", sa.Text(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("prev", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("n"),
    )
    op.create_index("moor_audit_run", "moor_audit", ["run_id", "n"], unique=False)
    op.create_index("moor_audit_prompt", "moor_audit", ["prompt_id", "n"], unique=False)


def downgrade() -> None:
    """Take this revision back."""
    op.drop_table("moor_audit")
    for name in ("override", "place"):
        op.drop_column("moor_interaction", name)
    for name in ("via", "name"):
        op.drop_column("moor_vote", name)
    for name in ("group_id", "level", "remind_at", "asked", "answerers", "quorum"):
        op.drop_column("moor_prompt", name)
