"""People and contexts that the bot's tests speak as.

What lives here: the cast of the tests. What does not: fakes with behaviour.
"""

from __future__ import annotations

from bot.principal import Principal
from channels.events import Standing

ALICE = Principal("console:alice", "Alice", Standing.MEMBER, channel="console")
BOB = Principal("console:bob", "Bob", Standing.MEMBER, channel="console")
FARAH = Principal("console:farah", "Farah", Standing.MEMBER, frozenset({"finance"}), "console")
GUEST = Principal("console:guest", "Gus", Standing.GUEST, channel="console")
NOBODY = Principal("", "", Standing.UNKNOWN)
