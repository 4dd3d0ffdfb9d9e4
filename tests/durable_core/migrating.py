"""A migrations folder with made-up revisions behind the real ones, as a later version would have.

What lives here: the folder, and code that takes it for its own. What does not: expectations.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from durable_core import schema

REVISION = '''"""A revision that was made up."""

import sqlalchemy as sa
from alembic import op

revision = "{name}"
down_revision = "{before}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    {change}


def downgrade() -> None:
    raise NotImplementedError
'''
ADDS = """op.add_column("moor_run", sa.Column("mood", sa.Text(), nullable=True))
    op.add_column("moor_event", sa.Column("weight", sa.BigInteger(), server_default=sa.text("7"), nullable=False))
    op.create_index("moor_run_mood", "moor_run", ["mood"])
    op.create_table("moor_mood", sa.Column("run_id", sa.Text(), primary_key=True))"""
TAKES = 'op.drop_table("moor_vote")'


def later_folder(place: Path, *names: str, change: str = ADDS) -> Path:
    """Make a migrations folder that ends with revisions of these names; only the first one changes anything."""
    folder = place / "migrations"
    shutil.copytree(schema.migrations_folder(), folder, ignore=shutil.ignore_patterns("__pycache__"))
    before = schema.HEAD
    for number, name in enumerate(names):
        text = REVISION.format(name=name, before=before, change="pass" if number else change)
        (folder / "versions" / f"{name}.py").write_text(text)
        before = name
    return folder


@contextmanager
def as_later_code(folder: Path) -> Iterator[None]:
    """Have the code take a folder's revisions for its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "migrations_folder", lambda: folder)
        yield
