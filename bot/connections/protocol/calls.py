"""One request to a provider, and what can go wrong with it before anybody reads the answer.

What lives here: the guarded client's errors as the protocol's, and statuses that need no reading. What does not: the answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bot.connections.protocol.errors import ProtocolError, ProviderDown, ProviderNonsense
from bot.outgoing import Fetched, NotAllowed, Outgoing, TooLarge, Unreachable

LIMIT: Final = 1 << 18
SECONDS: Final = 15.0


async def call(
    outgoing: Outgoing, method: str, url: str, *, what: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> Fetched:
    """Ask; returns an answer with a status of 200 to 299 or 400 to 499.

    Raises: ProviderDown, ProviderNonsense.
    """
    failed: ProtocolError
    try:
        fetched = await outgoing.fetch(
            method, url, headers={"Accept": "application/json", **(headers or {})}, body=body, limit=LIMIT, seconds=SECONDS
        )
    except NotAllowed as error:
        failed = ProviderNonsense(f"{what} is nowhere that may be asked: {error.reason}")
    except Unreachable as error:
        failed = ProviderDown(f"{what} at {error.origin} gives no answer: {error.reason}", sent=error.sent)
    except TooLarge:
        failed = ProviderNonsense(f"{what}: the answer is far too long")
    else:
        if fetched.status == 429:  # nothing was done
            raise ProviderDown(f"{what} takes no more requests for now", sent=False)
        if fetched.status >= 500:
            raise ProviderDown(f"{what} answered {fetched.status}", sent=True)
        if 200 <= fetched.status < 300 or 400 <= fetched.status < 500:
            return fetched
        failed = ProviderNonsense(f"{what} answered {fetched.status}, which is not followed")
    raise failed


def allowed(outgoing: Outgoing, url: str, *, named_by: str | None, what: str) -> str:
    """Return an address that an answer named, where it may be asked.

    Raises: ProviderNonsense.
    """
    try:
        outgoing.check(url, named_by=named_by)
    except NotAllowed as error:
        reason = error.reason
    else:
        return url
    raise ProviderNonsense(f"{what} is nowhere that may be asked: {reason}")
