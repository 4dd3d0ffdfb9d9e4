"""The beginning of a device flow (RFC 8628 3.2).

What lives here: reading what a provider gives the person to type. What does not: polling (provider.py), showing it.
"""

from __future__ import annotations

from typing import Final

from yarl import URL

from bot.connections.protocol.calls import allowed
from bot.connections.protocol.reading import Answer
from bot.connections.protocol.values import DeviceStart
from bot.outgoing import Outgoing

DAY: Final = 24 * 3600
_SLOWEST: Final = 300
_CODE: Final = 64


def read_start(answer: Answer, outgoing: Outgoing, *, named_by: str) -> DeviceStart:
    """Read it; the address, which somebody will be sent to, has to be one that could be asked itself.

    Raises: ProviderNonsense.
    """
    given = answer.token("verification_uri") or answer.needed("verification_url")  # Google's word
    uri = allowed(outgoing, given, named_by=named_by, what="the page of the provider's device flow")
    shown = answer.fields.get("user_code")
    if not isinstance(shown, str) or not 0 < len(shown) <= _CODE or not shown.isascii() or not shown.isprintable():
        raise answer.nonsense("user_code", "is nothing to type")
    expires_in = answer.seconds("expires_in", most=DAY)
    if expires_in is None:
        raise answer.nonsense("expires_in", "is missing")
    return DeviceStart(
        answer.needed("device_code"),
        shown,
        uri,
        uri_complete=_complete(answer.token("verification_uri_complete"), uri),
        interval=answer.seconds("interval", most=_SLOWEST) or 5,
        expires_in=expires_in,
    )


def _complete(url: str | None, uri: str) -> str | None:
    """Return the address with the code in it, if it is on the same origin as the one without."""
    try:
        return url if url is not None and URL(url).origin() == URL(uri).origin() and "@" not in URL(url).raw_authority else None
    except ValueError:
        return None
