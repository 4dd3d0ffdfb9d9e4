"""A provider that answers whatever a test wants: garbage, lies, other people's tokens.

What lives here: the server, its keys, and id_tokens made as wrong as wanted. What does not: expectations.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any
from urllib.parse import parse_qsl

import orjson
from aiohttp import web
from joserfc import jwt
from joserfc.jwk import RSAKey
from joserfc.jws import JWSRegistry

from bot.connections.protocol import Provider
from bot.outgoing import Outgoing
from tests.bot.connections.protocol.asking import PUBLIC, Kept, connection

KEY = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"}, private=True)
OTHER = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"}, private=True)
with warnings.catch_warnings(action="ignore"):
    WEAK = RSAKey.generate_key(1024, {"kid": "one"}, private=True)
ENDPOINTS = {
    "authorization_endpoint": "/authorize",
    "token_endpoint": "/token",
    "userinfo_endpoint": "/userinfo",
    "revocation_endpoint": "/revoke",
    "device_authorization_endpoint": "/device",
    "jwks_uri": "/jwks",
    "registration_endpoint": "/register",
}


class Hostile:
    """The server; `answers` by path: an object, bytes, or a `(status, body, headers)`. What isn't there is a 404."""

    def __init__(self) -> None:
        self.origin = ""
        self.time: int | None = None
        """What its clock says; unset, the machine's."""
        self.answers: dict[str, Any] = {"/jwks": {"keys": [KEY.as_dict(private=False)]}}
        self.asked: list[tuple[str, str, dict[str, str], dict[str, str]]] = []

    async def serve(self, request: web.Request) -> web.Response:
        form = dict(parse_qsl((await request.read()).decode("latin-1")))
        self.asked.append((request.method, request.path, form, dict(request.headers)))
        found = self.answers.get(request.path, (404, b"<html>nothing here", {}))
        found = found(request) if callable(found) else found
        found = await found if isawaitable(found) else found
        status, body, headers = found if isinstance(found, tuple) else (200, found, {})
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        return web.Response(status=status, body=raw, headers={"Content-Type": "application/json", **headers})

    def paths(self) -> list[str]:
        return [path for _, path, _, _ in self.asked]

    def describe(self, **changed: Any) -> None:
        """Describe itself, rightly but for what is changed; None leaves something out."""
        found = {"issuer": self.origin, **{name: self.origin + path for name, path in ENDPOINTS.items()}, **changed}
        self.answers["/.well-known/openid-configuration"] = {name: value for name, value in found.items() if value is not None}

    def provider(self, outgoing: Outgoing, *, kept: Kept | None = None, public_url: str = PUBLIC, **changed: Any) -> Provider:
        return Provider(
            connection(changed.pop("issuer", self.origin), **changed), outgoing, public_url=public_url, registrations=kept
        )

    def static(self, outgoing: Outgoing, **changed: Any) -> Provider:
        """Make a provider whose addresses the author wrote: nothing is discovered."""
        written = {
            f"{name}_url": f"{self.origin}/{name}" for name in ("authorize", "token", "userinfo", "revoke", "device", "jwks")
        }
        return self.provider(outgoing, **{"issuer": None, **written, **changed})

    def id_token(self, *, key: Any = KEY, alg: str = "RS256", header: dict[str, Any] | None = None, **claims: Any) -> str:
        now = self.time or int(time.time())
        right = {"iss": self.origin, "aud": "app", "sub": "alice", "exp": now + 300, "iat": now, "nonce": "n", **claims}
        found = {name: value for name, value in right.items() if value is not None}
        registry = JWSRegistry(algorithms=[alg], strict_check_header=False)
        registry.max_header_length = 100_000
        heads = {"alg": alg, "kid": "one", **(header or {})}
        return jwt.encode({name: one for name, one in heads.items() if one is not None}, found, key, registry=registry)


@asynccontextmanager
async def listening() -> AsyncIterator[Hostile]:
    hostile = Hostile()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", hostile.serve)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    hostile.origin = f"http://127.0.0.1:{runner.addresses[0][1]}"
    hostile.describe()
    try:
        yield hostile
    finally:
        await runner.cleanup()
