"""Workflow runs beside sessions, how long content is kept, what is stranded, and what a worker's code is.

Revision 0002_pre_core, after 0001_pre_spine. Safe while older code runs: all it adds is optional or has a default.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0002_pre_core"
down_revision: str | None = "0001_pre_spine"
branch_labels: str | None = None
depends_on: str | None = None

_KEPT = "purge_at IS NOT NULL AND purged_at IS NULL"


def upgrade() -> None:
    """Apply this revision."""
    op.add_column("moor_run", sa.Column("kind", sa.Text(), server_default=sa.text("'session'"), nullable=False))
    for name in ("keep_ms", "purge_at", "purged_at"):
        op.add_column("moor_run", sa.Column(name, sa.BigInteger(), nullable=True))
    op.add_column("moor_run", sa.Column("redactions", sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    for name in ("stranded", "stranded_code"):
        op.add_column("moor_run", sa.Column(name, sa.Text(), nullable=True))
    op.create_index("moor_run_purge", "moor_run", ["purge_at"], sqlite_where=sa.text(_KEPT), postgresql_where=sa.text(_KEPT))
    op.add_column("moor_worker", sa.Column("code", sa.Text(), server_default=sa.text("''"), nullable=False))
    op.add_column("moor_worker", sa.Column("workflows", sa.Text(), server_default=sa.text("'[]'"), nullable=False))


def downgrade() -> None:
    """Take this revision back."""
    op.drop_column("moor_worker", "workflows")
    op.drop_column("moor_worker", "code")
    op.drop_index("moor_run_purge", "moor_run")
    for name in ("stranded_code", "stranded", "redactions", "purged_at", "purge_at", "keep_ms", "kind"):
        op.drop_column("moor_run", name)
