"""Making providers for tests, and where their registrations are kept.

What lives here: what several of this folder's tests need. What does not: the real provider (tests/oidc.py), the hostile one.
"""

from __future__ import annotations

import secrets
from typing import Any

from yarl import URL

from bot.connections.connection import OAuthConnection
from bot.connections.protocol import Provider, Registration, TokenGrant
from tests.oidc import SECRET, OidcPeer

PUBLIC = "http://127.0.0.1:1"
"""The app's own address; nobody listens there."""


class Kept:
    """Registrations in memory."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], Registration] = {}

    async def find(self, issuer: str, redirect_uri: str) -> Registration | None:
        return self.found.get((issuer, redirect_uri))

    async def keep(self, registration: Registration) -> Registration:
        return self.found.setdefault((registration.issuer, registration.redirect_uri), registration)

    async def drop(self, registration: Registration) -> None:
        if self.found.get((registration.issuer, registration.redirect_uri)) == registration:
            del self.found[registration.issuer, registration.redirect_uri]


def connection(issuer: str | None, **changed: Any) -> OAuthConnection:
    given: dict[str, Any] = {
        "client_id": "app",
        "client_secret": SECRET,
        "issuer": issuer,
        "scopes": ("openid", "email", "profile"),
        **changed,
    }
    return OAuthConnection("tracker", **given)


class SignIn:
    """One sign-in by the code flow, with what it is bound to."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.state, self.verifier, self.nonce = (secrets.token_urlsafe(32) for _ in range(3))
        self.params: dict[str, str] = {}

    async def url(self, *scopes: str) -> str:
        return await self.provider.authorize_url(
            state=self.state,
            verifier=self.verifier,
            redirect_uri=self.provider.redirect_uri,
            scopes=scopes or tuple(self.provider.connection.scopes),
            nonce=self.nonce,
        )

    async def come_back(self, oidc: OidcPeer, login: str = "alice", *, scopes: tuple[str, ...] = (), deny: bool = False) -> str:
        back = URL(await oidc.sign_in(await self.url(*scopes), login, deny=deny))
        self.params = dict(back.query)
        assert self.params["state"] == self.state
        return await self.provider.check_callback(self.params)

    async def exchange(self, code: str, **changed: Any) -> TokenGrant:
        given = {"verifier": self.verifier, "redirect_uri": self.provider.redirect_uri, "nonce": self.nonce, **changed}
        return await self.provider.exchange(code, **given)
