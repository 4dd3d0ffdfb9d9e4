"""Tables that belong to no run: the vault, worker incarnations, the revisions that were applied.

What lives here: those tables. What does not: all others, and what they have in common (`tables.py`, which takes these in).
"""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import Index
from sqlmodel import Field, SQLModel

from durable_core.columns import bytes_column, int_column, partial_index, text_column


class VaultRow(SQLModel, table=True):
    """Sealed entries outside of any run; the ring's own key seals them."""

    __tablename__: ClassVar[str] = "moor_vault"
    __table_args__ = (
        Index("moor_vault_owner", "owner", "name"),  # vault_list: what a person owns
        Index("moor_vault_kind", "kind", "name"),  # vault_list: all of a kind
        # vault_due: of a kind, the longest due first
        partial_index("moor_vault_due", "kind", "due_at", where="due_at IS NOT NULL"),
        # purge: what has expired
        partial_index("moor_vault_expired", "expires_at", where="expires_at IS NOT NULL"),
    )

    name: str = Field(sa_column=text_column(primary_key=True))
    kind: str = Field(sa_column=text_column())
    owner: str = Field(sa_column=text_column())
    version: int = Field(sa_column=int_column())
    # bound to the name, the kind, the owner and the version
    sealed: bytes = Field(sa_column=bytes_column())
    # what lists show; not sealed
    about: bytes = Field(sa_column=bytes_column())
    due_at: int | None = Field(sa_column=int_column(nullable=True))
    expires_at: int | None = Field(sa_column=int_column(nullable=True))
    holder: str | None = Field(sa_column=text_column(nullable=True))
    held_until: int | None = Field(sa_column=int_column(nullable=True))
    created_at: int = Field(sa_column=int_column())
    changed_at: int = Field(sa_column=int_column())


class WorkerRow(SQLModel, table=True):
    """Worker incarnations: which code runs where, and what it can read."""

    __tablename__: ClassVar[str] = "moor_worker"

    owner: str = Field(sa_column=text_column(primary_key=True))
    deployment: str = Field(sa_column=text_column())
    min_readable: int = Field(sa_column=int_column())
    current: int = Field(sa_column=int_column())
    host: str = Field(sa_column=text_column())
    pid: int = Field(sa_column=int_column())
    started_at: int = Field(sa_column=int_column())
    heartbeat: int = Field(sa_column=int_column())
    code: str = Field(sa_column=text_column(default=""))
    workflows: str = Field(sa_column=text_column(default="[]"))
    revision: str = Field(sa_column=text_column(default=""))
    gone_at: int | None = Field(sa_column=int_column(nullable=True))


class RevisionRow(SQLModel, table=True):
    """Names of the revisions that were applied: older code tells by them whether it may work on a newer schema."""

    __tablename__: ClassVar[str] = "moor_revision"

    name: str = Field(sa_column=text_column(primary_key=True))
