"""Requests to people over HTTP: which are open, overrides, links to connect an account, and the audit.

What lives here: routes, scopes, and how each call is read. What does not: answers within a session (api.py), who sees what.
"""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web

from bot.errors import Problem
from bot.server import bodies
from bot.server.api import SCOPE, bad_query, json_answer, path_id, read_query, result_view
from bot.server.auth import Authenticator
from bot.server.limits import Limits
from bot.session_api import PromptApi

READ: Final = "prompts:read"
OVERRIDE: Final = "prompts:override"
AUDIT: Final = "audit:read"
_NUMBER = re.compile(r"[0-9]{1,15}")
_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


class PromptRoutes:
    """The calls about requests; each knows its caller before it reads anything else."""

    def __init__(self, prompts: PromptApi, *, auth: Authenticator, limits: Limits) -> None:
        self._prompts = prompts
        self._auth = auth
        self._limits = limits

    def routes(self) -> list[web.RouteDef]:
        """List the routes."""
        return [
            web.get("/v1/prompts", self.listed),
            web.post("/v1/prompts/{prompt_id}/override", self.override),
            web.post("/v1/prompts/{prompt_id}/connect", self.connect),
            web.get("/v1/audit", self.audit),
        ]

    async def listed(self, request: web.Request) -> web.Response:
        """GET /v1/prompts."""
        caller, scopes = self._auth.granted(request)
        if not scopes & {SCOPE, READ}:
            raise Problem(403, "missing_scope", f"This token has neither the scope `{SCOPE}` nor `{READ}`. Use one that has.")
        query = read_query(request, {"session_id", "mine", "after", "limit"})
        found = await self._prompts.listed(
            caller,
            everyone=READ in scopes,
            session_id=_id(query, "session_id"),
            mine=_flag(query, "mine"),
            after=_id(query, "after"),
            limit=self._limit(query),
        )
        return json_answer(found)

    async def override(self, request: web.Request) -> web.Response:
        """POST /v1/prompts/{id}/override."""
        caller = self._auth.caller(request, OVERRIDE)
        request_id = path_id(request, "prompt")
        key = bodies.idempotency_key(request)
        read_query(request, set())
        body = await bodies.read_object(request, bodies.OVERRIDE, limits=self._limits)
        result = await self._prompts.override(
            caller,
            request_id,
            option_id=bodies.short(body, "option_id") or "",
            reason=bodies.reason(body, limits=self._limits),
            note=bodies.filled(body, "note", limits=self._limits),
            key=key,
        )
        return json_answer(result_view(result), status=202)

    async def connect(self, request: web.Request) -> web.Response:
        """POST /v1/prompts/{id}/connect: no two calls give the same link, whatever their key."""
        caller = self._auth.caller(request, SCOPE)
        request_id = path_id(request, "prompt")
        key = bodies.idempotency_key(request)
        read_query(request, set())
        await bodies.read_object(request, bodies.CONNECT, limits=self._limits)
        return json_answer(await self._prompts.connect(caller, request_id, key=key))

    async def audit(self, request: web.Request) -> web.Response:
        """GET /v1/audit."""
        self._auth.caller(request, AUDIT)
        query = read_query(request, {"session_id", "request_id", "after", "limit"})
        after = query.get("after", "0")
        if not _NUMBER.fullmatch(after):
            raise bad_query("after has to be the number of an entry; 0 begins with the first.")
        found = await self._prompts.audit(
            session_id=_id(query, "session_id"),
            request_id=_id(query, "request_id"),
            after=int(after),
            limit=self._limit(query),
        )
        return json_answer(found)

    def _limit(self, query: dict[str, str]) -> int:
        text = query.get("limit", "100")
        if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= self._limits.page:
            raise bad_query(f"limit has to be a number from 1 to {self._limits.page}.")
        return int(text)


def _flag(query: dict[str, str], name: str) -> bool:
    text = query.get(name, "false")
    if text not in {"true", "false"}:
        raise bad_query(f"{name} has to be true or false.")
    return text == "true"


def _id(query: dict[str, str], name: str) -> str | None:
    text = query.get(name)
    if text is not None and not _ID.fullmatch(text):
        raise bad_query(f"{name} has to be an id.")
    return text
