"""Who calls the session API.

What lives here: bearer tokens, and the caller of a server that has none. What does not: which session is whose (the session API).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from aiohttp import web

from bot.console.security import refusal
from bot.errors import Problem
from bot.principal import Principal
from bot.settings import SCOPES, ApiToken
from channels.events import Standing

_NO_TOKENS = (
    "Without API tokens this server answers only to programs of its own machine, as 127.0.0.1 or localhost, and to no page of "
    "another site. Set MOORINGS_API_TOKENS and send one as `Authorization: Bearer TOKEN`."
)


class Authenticator:
    """Names the caller of a request, or refuses it; what it doesn't know it refuses."""

    def __init__(self, tokens: Sequence[ApiToken]) -> None:
        self._tokens = tuple(tokens)

    def caller(self, request: web.Request, scope: str) -> Principal:
        """Return who calls.

        Raises: Problem (401 without a good token, 403 without the scope or from elsewhere on a server without tokens).
        """
        principal, scopes = self.granted(request)
        if scope not in scopes:
            raise Problem(403, "missing_scope", f"This token doesn't have the scope `{scope}`. Use one that has.")
        return principal

    def granted(self, request: web.Request) -> tuple[Principal, frozenset[str]]:
        """Return who calls and what they may do; without tokens no more than sessions. Raises: Problem (401, 403)."""
        if not self._tokens:
            return _local(request), SCOPES
        token = self._token(_bearer(request))
        return _principal(token.principal), token.scopes

    def _token(self, presented: str) -> ApiToken:
        """Find the token in a time that doesn't depend on which it is, nor on how much of it is right."""
        digest = hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest()
        found: ApiToken | None = None
        for token in self._tokens:
            if hmac.compare_digest(token.digest, digest):
                found = token
        if found is None:
            raise Problem(401, "unauthorized", "This token is not known. Use one of those in MOORINGS_API_TOKENS.")
        return found


def _bearer(request: web.Request) -> str:
    values = request.headers.getall("Authorization", [])
    if len(values) != 1:
        raise Problem(401, "unauthorized", "Send one token, as `Authorization: Bearer TOKEN`.")
    scheme, _, token = values[0].strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Problem(401, "unauthorized", "Send the token as `Authorization: Bearer TOKEN`.")
    return token.strip()


def _local(request: web.Request) -> Principal:
    if refusal(request, port=None) is not None:
        raise Problem(403, "forbidden", _NO_TOKENS)
    return _principal("local")


def _principal(name: str) -> Principal:
    return Principal(f"api:{name}", name, Standing.MEMBER, channel="api")
