"""Token requests and their answers (RFC 6749 4 to 6).

What lives here: the body and the client's proof of a request, and a grant read from an answer. What does not: sending.
"""

from __future__ import annotations

import base64
from collections.abc import Collection
from typing import Final
from urllib.parse import quote_plus

# oauthlib writes requests well. Its reader of answers is not used: measured on 4.0.1, `parse_token_response` takes `{}`, -5 or
# `true` for a token, a refresh token or a lifetime, dies of AttributeError, TypeError or OverflowError on `[]`, `null` and
# 1e999, and raises a bare `Warning` where other scopes came than were asked for.
from oauthlib.oauth2.rfc6749.parameters import prepare_token_request

from bot.connections.protocol.errors import ProviderNonsense
from bot.connections.protocol.reading import FORM, Answer, read_object
from bot.connections.protocol.refusals import refusal
from bot.connections.protocol.values import Client, ClientAuth, TokenGrant
from bot.outgoing import Fetched

DEVICE: Final = "urn:ietf:params:oauth:grant-type:device_code"
LONGEST: Final = 10 * 365 * 24 * 3600
"""Seconds that a token lives at most, whatever its provider says."""
_KINDS: Final = frozenset({"bearer", "user", "bot"})  # the latter two are Slack's
_OURS: Final = frozenset({"access_token", "refresh_token", "expires_in", "scope", "id_token", "token_type"})


def authenticated(client: Client, fields: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Add the client's proof (RFC 6749 2.3.1); returns the headers and the fields of a form."""
    headers = {"Content-Type": FORM}
    if client.auth is ClientAuth.BASIC and client.secret is not None:
        pair = f"{quote_plus(client.client_id)}:{quote_plus(client.secret)}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        return headers, fields
    fields = {**fields, "client_id": client.client_id}
    if client.auth is ClientAuth.POST and client.secret is not None:
        fields["client_secret"] = client.secret
    return headers, fields


def token_request(client: Client, grant_type: str, fields: dict[str, str]) -> tuple[dict[str, str], bytes]:
    """Write a request to the token endpoint; returns its headers and its body."""
    headers, proved = authenticated(client, fields)
    written: str = prepare_token_request(grant_type, **proved)
    return headers, written.encode()


def read_answer(fetched: Fetched, what: str, secrets: Collection[str]) -> Answer:
    """Read an object that is no refusal.

    Raises: ProviderRefused, ProviderNonsense.
    """
    bare = ProviderNonsense(f"{what} answered {fetched.status} without an OAuth error")
    try:
        answer = read_object(fetched, what, forms=True)
    except ProviderNonsense:
        if fetched.status < 400:
            raise
        raise bare from None
    refused = refusal(answer.fields, secrets)
    if refused is not None:
        raise refused
    if fetched.status >= 400:
        raise bare
    return answer


def read_grant(answer: Answer) -> TokenGrant:
    """Read a grant; the id_token is not looked at here.

    Raises: ProviderNonsense.
    """
    access_token = answer.needed("access_token")
    kind = answer.token("token_type")
    if kind is not None and kind.lower() not in _KINDS:
        raise answer.nonsense("token_type", "is none that a bearer could use")
    return TokenGrant(
        access_token,
        refresh_token=answer.token("refresh_token"),
        expires_in=answer.seconds("expires_in", most=LONGEST),
        scopes=answer.scopes("scope"),
        extra={name: value for name, value in answer.fields.items() if name not in _OURS},
    )
