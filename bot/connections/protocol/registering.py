"""How an app that nobody registered makes itself known (Client ID Metadata Documents, RFC 7591).

What lives here: the document that the app serves, a registration's request and answer. What does not: serving and keeping them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from bot.connections.protocol.calls import call
from bot.connections.protocol.grants import DEVICE, read_answer
from bot.connections.protocol.ports import Registration
from bot.connections.protocol.values import ClientAuth, Endpoints
from bot.outgoing import Outgoing

DOCUMENT: Final = "/connect/client.json"
"""Where the app serves its document: that address is its client_id."""
NAME: Final = "Moorings"
_CENTURY: Final = 100 * 365 * 24 * 3600


def client_document(public_url: str, redirect_uris: Sequence[str], *, name: str = NAME) -> dict[str, Any]:
    """Return the document that stands for the app at providers which read such: one for all its connections."""
    return {
        "client_id": public_url.rstrip("/") + DOCUMENT,
        "client_name": name,
        "client_uri": public_url,
        **_described(redirect_uris, ClientAuth.NONE, device=False),
    }


def _described(redirect_uris: Sequence[str], auth: ClientAuth, *, device: bool) -> dict[str, Any]:
    return {
        "redirect_uris": list(redirect_uris),
        "grant_types": ["authorization_code", "refresh_token", *([DEVICE] if device else [])],
        "response_types": ["code"],
        "token_endpoint_auth_method": auth.value,
    }


def preferred(endpoints: Endpoints) -> ClientAuth:
    """Choose how a client that is made for us proves itself: not at all where it may, since PKCE binds the code anyway."""
    offered = endpoints.auth_methods or (ClientAuth.BASIC.value,)  # RFC 8414 2: Basic where nothing is said
    return next((auth for auth in (ClientAuth.NONE, ClientAuth.BASIC, ClientAuth.POST) if auth in offered), ClientAuth.BASIC)


async def register(
    outgoing: Outgoing, endpoints: Endpoints, redirect_uri: str, *, device: bool, name: str = NAME
) -> Registration:
    """Have a client made. Asked twice it makes two: the caller keeps the first.

    Raises: ProviderDown, ProviderRefused, ProviderNonsense.
    """
    assert endpoints.registration is not None  # noqa: S101 - the caller has looked
    assert endpoints.issuer is not None  # noqa: S101 - only a description names a place to register at
    wanted = {"client_name": name, **_described([redirect_uri], preferred(endpoints), device=device)}
    what = "the provider's registration"
    fetched = await call(
        outgoing,
        "POST",
        endpoints.registration,
        what=what,
        headers={"Content-Type": "application/json"},
        body=orjson.dumps(wanted),
    )
    answer = read_answer(fetched, what, ())
    client_id, secret = answer.needed("client_id"), answer.token("client_secret")
    kept = answer.texts("redirect_uris")
    if kept and redirect_uri not in kept:
        raise answer.nonsense("redirect_uris", "leaves out the one that was asked for")
    auth = answer.token("token_endpoint_auth_method") or (ClientAuth.BASIC if secret else ClientAuth.NONE)
    if auth not in set(ClientAuth) or (auth != ClientAuth.NONE and secret is None):
        raise answer.nonsense("token_endpoint_auth_method", "is none that can be used")
    return Registration(
        endpoints.issuer,
        client_id,
        secret,
        redirect_uri=redirect_uri,
        auth=ClientAuth(auth),
        expires_at=answer.seconds("client_secret_expires_at", most=_CENTURY) if secret else None,
    )
