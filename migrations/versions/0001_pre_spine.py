"""The first schema: runs with their inbox, steps, events and prompts, the outbox, and the workers.

Revision 0001_pre_spine, after nothing.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0001_pre_spine"
down_revision: str | None = None
branch_labels: str | None = None
depends_on: str | None = None

TABLES = (
    "moor_run",
    "moor_address",
    "moor_admission",
    "moor_command",
    "moor_step",
    "moor_record",
    "moor_event",
    "moor_prompt",
    "moor_vote",
    "moor_interaction",
    "moor_lane",
    "moor_outbox",
    "moor_worker",
)


def upgrade() -> None:
    """Apply this revision."""
    _run()
    _address()
    _admission()
    _command()
    _step()
    _record()
    _event()
    _prompt()
    _vote()
    _interaction()
    _lane()
    _outbox()
    _worker()


def downgrade() -> None:
    """Take this revision back."""
    for table in reversed(TABLES):
        op.drop_table(table)


def _run() -> None:
    op.create_table(
        "moor_run",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("creator", sa.Text(), nullable=False),
        sa.Column("session_key", sa.LargeBinary(), nullable=False),
        sa.Column("header", sa.LargeBinary(), nullable=False),
        sa.Column("spec_version", sa.BigInteger(), nullable=False),
        sa.Column("deployment", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=True),
        sa.Column("inbox_seq", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("cancel_seq", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("event_seq", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("event_index", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("wake_at", sa.BigInteger(), nullable=True),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease_until", sa.BigInteger(), nullable=True),
        sa.Column("step_no", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("step_started_at", sa.BigInteger(), nullable=True),
        sa.Column("attempt", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("charged", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("crashes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("progressed", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("interrupted", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("retry_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.Column("deadline_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("end_reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_index(
        "moor_run_due",
        "moor_run",
        ["wake_at"],
        sqlite_where=sa.text("wake_at IS NOT NULL AND owner IS NULL"),
        postgresql_where=sa.text("wake_at IS NOT NULL AND owner IS NULL"),
    )
    op.create_index(
        "moor_run_owner",
        "moor_run",
        ["owner"],
        sqlite_where=sa.text("owner IS NOT NULL"),
        postgresql_where=sa.text("owner IS NOT NULL"),
    )


def _address() -> None:
    op.create_table(
        "moor_address",
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("channel", "address"),
    )
    op.create_index("moor_address_run", "moor_address", ["run_id"])


def _admission() -> None:
    op.create_table(
        "moor_admission",
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("submission_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("created", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("detail", sa.LargeBinary(), nullable=True),
        sa.Column("reply_step", sa.BigInteger(), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("done_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("source", "key"),
    )
    op.create_index(
        "moor_admission_open",
        "moor_admission",
        ["run_id", "seq"],
        sqlite_where=sa.text("outcome IS NULL"),
        postgresql_where=sa.text("outcome IS NULL"),
    )
    op.create_index("moor_admission_submission", "moor_admission", ["submission_id"], unique=True)


def _command() -> None:
    op.create_table(
        "moor_command",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("submission_id", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("taken_step", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "seq"),
    )
    op.create_index(
        "moor_command_new",
        "moor_command",
        ["run_id", "seq"],
        sqlite_where=sa.text("taken_step IS NULL"),
        postgresql_where=sa.text("taken_step IS NULL"),
    )


def _step() -> None:
    op.create_table(
        "moor_step",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("n", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("spec_version", sa.BigInteger(), nullable=False),
        sa.Column("deployment", sa.Text(), nullable=False),
        sa.Column("input", sa.LargeBinary(), nullable=False),
        sa.Column("output", sa.LargeBinary(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("completed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "n"),
    )


def _record() -> None:
    op.create_table(
        "moor_record",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("step_n", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("input_hash", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "step_n", "key"),
    )


def _event() -> None:
    op.create_table(
        "moor_event",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("idx", sa.BigInteger(), nullable=True),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("refs", sa.Text(), nullable=True),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "seq"),
    )
    op.create_index(
        "moor_event_visible",
        "moor_event",
        ["run_id", "idx"],
        sqlite_where=sa.text("idx IS NOT NULL"),
        postgresql_where=sa.text("idx IS NOT NULL"),
    )


def _prompt() -> None:
    op.create_table(
        "moor_prompt",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("prompt_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("step_n", sa.BigInteger(), nullable=False),
        sa.Column("call_id", sa.Text(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("requester", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("created_seq", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("option_id", sa.Text(), nullable=True),
        sa.Column("settled_by", sa.Text(), nullable=True),
        sa.Column("settled_name", sa.Text(), nullable=True),
        sa.Column("settled_via", sa.Text(), nullable=True),
        sa.Column("settled_at", sa.BigInteger(), nullable=True),
        sa.Column("settled_seq", sa.BigInteger(), nullable=True),
        sa.Column("note", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "prompt_id"),
    )
    op.create_index("moor_prompt_id", "moor_prompt", ["prompt_id"], unique=True)
    op.create_index(
        "moor_prompt_open",
        "moor_prompt",
        ["run_id", "created_at"],
        sqlite_where=sa.text("outcome IS NULL"),
        postgresql_where=sa.text("outcome IS NULL"),
    )


def _vote() -> None:
    op.create_table(
        "moor_vote",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("prompt_id", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("option_id", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "prompt_id", "principal"),
    )


def _interaction() -> None:
    op.create_table(
        "moor_interaction",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("interaction_id", sa.Text(), nullable=False),
        sa.Column("prompt_id", sa.Text(), nullable=False),
        sa.Column("option_id", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("via", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("note", sa.LargeBinary(), nullable=True),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("attempts", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("status", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "interaction_id"),
    )
    op.create_index(
        "moor_interaction_due",
        "moor_interaction",
        ["due_at"],
        sqlite_where=sa.text("status IS NULL"),
        postgresql_where=sa.text("status IS NULL"),
    )


def _lane() -> None:
    op.create_table(
        "moor_lane",
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("done_seq", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease_until", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("channel", "address"),
    )
    op.create_index(
        "moor_lane_due",
        "moor_lane",
        ["due_at"],
        sqlite_where=sa.text("due_at IS NOT NULL"),
        postgresql_where=sa.text("due_at IS NOT NULL"),
    )
    op.create_index(
        "moor_lane_owner",
        "moor_lane",
        ["owner"],
        sqlite_where=sa.text("owner IS NOT NULL"),
        postgresql_where=sa.text("owner IS NOT NULL"),
    )


def _outbox() -> None:
    op.create_table(
        "moor_outbox",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("delivery_id", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("lane_seq", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("prompt_id", sa.Text(), nullable=True),
        sa.Column("edit_of", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("ref", sa.Text(), nullable=True),
        sa.Column("attempts", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("done_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "delivery_id"),
    )
    op.create_index("moor_outbox_delivery", "moor_outbox", ["delivery_id"], unique=True)
    op.create_index(
        "moor_outbox_lane",
        "moor_outbox",
        ["channel", "address", "lane_seq"],
        sqlite_where=sa.text("state = 'pending'"),
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_index(
        "moor_outbox_prompt",
        "moor_outbox",
        ["prompt_id"],
        sqlite_where=sa.text("prompt_id IS NOT NULL"),
        postgresql_where=sa.text("prompt_id IS NOT NULL"),
    )


def _worker() -> None:
    op.create_table(
        "moor_worker",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("deployment", sa.Text(), nullable=False),
        sa.Column("min_readable", sa.BigInteger(), nullable=False),
        sa.Column("current", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("heartbeat", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner"),
    )
