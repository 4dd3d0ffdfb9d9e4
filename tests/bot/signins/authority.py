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
    metadata: dict[str, Any] = field(default_factory=dict)
    """What is added to, or in place of, its description of itself."""
    denies: bool = False
    gate: asyncio.Event | None = None
    """The token endpoint waits for it."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    authorized: list[dict[str, str]] = field(default_factory=list)
    referers: list[str | None] = field(default_factory=list)
    exchanged: list[dict[str, str]] = field(default_factory=list)
    revoked: list[str] = field(default_factory=list)
    started: list[dict[str, str]] = field(default_factory=list)
    """Device flows that began."""
    polled: list[dict[str, Any]] = field(default_factory=list)
    """What is answered to questions about a device flow, in order: an error by its name, else what is added to a grant."""
    _runner: web.AppRunner | None = None
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
        if "device_code" in form:
            answer = self.polled.pop(0) if self.polled else {"error": "authorization_pending"}
            return web.json_response(
                answer if "error" in answer else self.token | answer, status=400 if "error" in answer else 200
            )
        asked = self._codes.pop(form.get("code", ""), None)
        if asked is None or challenge(form.get("code_verifier", "")) != asked["code_challenge"]:
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response({"scope": asked.get("scope", ""), **self.token})

    async def device(self, request: web.Request) -> web.Response:
        self.started.append({name: str(value) for name, value in (await request.post()).items()})
        number = len(self.started)
        codes = {"device_code": f"CANARY-device-{number}", "user_code": f"WDJB-{number:04}", "expires_in": 600, "interval": 5}
        return web.json_response({**codes, "verification_uri": f"{self.url}/activate"})

    async def describe(self, request: web.Request) -> web.Response:
        about = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        return web.json_response(about | self.metadata)

    async def userinfo(self, request: web.Request) -> web.Response:
        return web.json_response(self.account)

    async def revoke(self, request: web.Request) -> web.Response:
        self.revoked.append(str((await request.post())["token"]))
        return web.Response()

    async def start(self) -> None:
        """Listen, at the address of before if there was one."""
        app = web.Application()
        app.router.add_get("/authorize", self.authorize)
        app.router.add_post("/token", self.exchange)
        app.router.add_get("/.well-known/oauth-authorization-server", self.describe)
        app.router.add_get("/.well-known/openid-configuration", self.describe)
        app.router.add_get("/userinfo", self.userinfo)
        app.router.add_post("/revoke", self.revoke)
        app.router.add_post("/device", self.device)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        port = int(self.url.rpartition(":")[2]) if self.url else 0
        await web.TCPSite(self._runner, "127.0.0.1", port, reuse_address=True).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Be gone."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


def challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


@asynccontextmanager
async def authority() -> AsyncIterator[Authority]:
    """Run one on a free port."""
    made = Authority()
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
