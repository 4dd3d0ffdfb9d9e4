"""The people of the console: who can be spoken and clicked as.

What lives here: the cast and its standing. What does not: what any of them may do.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from channels.events import Standing

BOT = "bot"


@dataclass(frozen=True, slots=True)
class CastMember:
    """One of the cast; `role_text` and `color` are for the page, the rest is what the platform vouches for."""

    id: str
    name: str
    _: KW_ONLY
    role_text: str
    standing: Standing
    roles: frozenset[str] = frozenset()
    color: str = "#8a8f98"

    @property
    def email(self) -> str:
        """Their address, in a domain that no mail is ever sent to (RFC 6761 §6.2)."""
        return f"{self.id}@example.test"


CAST: tuple[CastMember, ...] = (
    CastMember("alice", "Alice", role_text="requester", standing=Standing.MEMBER, color="#5b6bd6"),
    CastMember("bob", "Bob", role_text="member", standing=Standing.MEMBER, color="#b0632b"),
    CastMember("farah", "Farah", role_text="finance", standing=Standing.MEMBER, roles=frozenset({"finance"}), color="#2f7d5b"),
    CastMember("guest", "Guest", role_text="outside", standing=Standing.GUEST, color="#8a8f98"),
)


def cast_member(author_id: str) -> CastMember | None:
    """Return the member of that id, or None."""
    return next((member for member in CAST if member.id == author_id), None)
