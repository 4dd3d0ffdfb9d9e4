"""A provider that does as it is told: slow, wrong, absent, or as it should be.

What lives here: an OAuth server whose answers a test chooses, and what it was asked. What does not: a provider that somebody else
wrote (tests/oidc.py), browsers (browser.py).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from aiohttp import web


@dataclass(slots=True)
class Authority:
    """Grants everything to whoever comes, unless it is told otherwise."""

    url: str = ""
    account: dict[str, Any] = field(
        default_factory=lambda: {"sub": "a-1", "name": "alice@tracker", "email": "alice@example.test", "email_verified": True}
    )
    token: dict[str, Any] = field(
        default_factory=lambda: {
            "access_token": "CANARY-access",
            "refresh_token": "CANARY-refresh",
            "token_type": "Bearer",
            "expires_in": 3600,
        }
    )
    """What is added to, or in place of, a right answer to an exchange."""
    raw: tuple[int, bytes] | None = None
    """The answer to an exchange, where it is to be no right one."""
    callback: dict[str, str | None] = field(default_factory=dict)
    """What is added to a callback, or, None, left out."""
    denies: bool = False
    gate: asyncio.Event | None = None
    """The token endpoint waits for it."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    authorized: list[dict[str, str]] = field(default_factory=list)
    referers: list[str | None] = field(default_factory=list)
    exchanged: list[dict[str, str]] = field(default_factory=list)
    revoked: list[str] = field(default_factory=list)
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)

    async def authorize(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        self.authorized.append(query)
        self.referers.append(request.headers.get("Referer"))
        back: dict[str, str | None] = {"state": query["state"], "iss": self.url}
        if self.denies:
            back |= {"error": "access_denied", "error_description": "the person said no"}
        else:
            code = f"CANARY-code-{len(self.authorized)}"
            self._codes[code] = query
            back |= {"code": code}
        params = {name: value for name, value in (back | self.callback).items() if value is not None}
        raise web.HTTPFound(f"{query['redirect_uri']}?{urlencode(params)}")

    async def exchange(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.exchanged.append(form)
        self.asked.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.raw is not None:
            return web.Response(status=self.raw[0], body=self.raw[1], content_type="application/json")
        asked = self._codes.pop(form.get("code", ""), None)
        if asked is None or challenge(form.get("code_verifier", "")) != asked["code_challenge"]:
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response({"scope": asked.get("scope", ""), **self.token})

    async def userinfo(self, request: web.Request) -> web.Response:
        return web.json_response(self.account)

    async def revoke(self, request: web.Request) -> web.Response:
        self.revoked.append(str((await request.post())["token"]))
        return web.Response()


def challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


@asynccontextmanager
async def authority() -> AsyncIterator[Authority]:
    """Run one on a free port."""
    made = Authority()
    app = web.Application()
    app.router.add_get("/authorize", made.authorize)
    app.router.add_post("/token", made.exchange)
    app.router.add_get("/userinfo", made.userinfo)
    app.router.add_post("/revoke", made.revoke)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()
