"""Open prompts are found by the time in their run's id, and in the order in which they were asked.

Revision 0007_pre_open_prompts, after 0006_pre_vault. Safe while older code runs: it only adds indexes.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0007_pre_open_prompts"
down_revision: str | None = "0006_pre_vault"
branch_labels: str | None = None
depends_on: str | None = None

OPEN = sa.text("outcome IS NULL")
TIME = sa.text("substr(run_id, length(run_id) - 25, 10)")


def upgrade() -> None:
    """Apply this revision."""
    op.create_index("moor_prompt_time", "moor_prompt", [TIME], sqlite_where=OPEN, postgresql_where=OPEN)
    columns = ["created_at", "prompt_id"]
    op.create_index("moor_prompt_asked", "moor_prompt", columns, sqlite_where=OPEN, postgresql_where=OPEN)


def downgrade() -> None:
    """Take this revision back."""
    op.drop_index("moor_prompt_asked", table_name="moor_prompt")
    op.drop_index("moor_prompt_time", table_name="moor_prompt")
