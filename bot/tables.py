"""Tables of the bot, in the core's schema: who takes part in a session.

What lives here: tables, for Alembic and admin queries. What does not: statements (participants.py), the core's own tables.
"""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import BigInteger, Column, Text
from sqlmodel import Field, SQLModel


class ParticipantRow(SQLModel, table=True):
    """Somebody whose message a session took: may read it and go on with it over the API."""

    __tablename__: ClassVar[str] = "moor_participant"

    run_id: str = Field(sa_column=Column(Text, primary_key=True, nullable=False))
    principal: str = Field(sa_column=Column(Text, primary_key=True, nullable=False))
    joined_at: int = Field(sa_column=Column(BigInteger, nullable=False, autoincrement=False))
