"""The one way out for addresses that somebody else named: a provider, a metadata document, an author's `hosts`.

What lives here: the guarded HTTP client, its answers and errors. What does not: what is asked for, OAuth, channels' own clients.
"""

from bot.outgoing.client import Outgoing
from bot.outgoing.errors import NotAllowed, OutgoingError, TooLarge, Unreachable
from bot.outgoing.fetched import Fetched, NotJson

__all__ = ["Fetched", "NotAllowed", "NotJson", "Outgoing", "OutgoingError", "TooLarge", "Unreachable"]
