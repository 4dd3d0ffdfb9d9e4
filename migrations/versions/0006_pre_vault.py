"""The vault; answers that ask for something beside the answer.

Revision 0006_pre_vault, after 0005_pre_prompts. Safe while older code runs: it adds a table that older code doesn't use, and a
column with a default.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0006_pre_vault"
down_revision: str | None = "0005_pre_prompts"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Apply this revision."""
    op.add_column("moor_interaction", sa.Column("aside", sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    op.create_table(
        "moor_vault",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("about", sa.LargeBinary(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("holder", sa.Text(), nullable=True),
        sa.Column("held_until", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_index("moor_vault_owner", "moor_vault", ["owner", "name"], unique=False)
    op.create_index("moor_vault_kind", "moor_vault", ["kind", "name"], unique=False)
    for name, columns, where in (
        ("moor_vault_due", ["kind", "due_at"], "due_at IS NOT NULL"),
        ("moor_vault_expired", ["expires_at"], "expires_at IS NOT NULL"),
    ):
        op.create_index(name, "moor_vault", columns, unique=False, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def downgrade() -> None:
    """Take this revision back."""
    for name in ("moor_vault_expired", "moor_vault_due", "moor_vault_kind", "moor_vault_owner"):
        op.drop_index(name, table_name="moor_vault")
    op.drop_table("moor_vault")
    op.drop_column("moor_interaction", "aside")
