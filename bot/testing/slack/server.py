"""The Web API over HTTP: tokens, scopes, arguments and faults; uploads and response URLs beside it.

What lives here: from a request to a method and back. What does not: what a method does (chat, reading, uploads).
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from urllib.parse import unquote_plus

from aiohttp import web

from bot.testing.slack import chat, reading, uploads, views
from bot.testing.slack.args import Args
from bot.testing.slack.faults import Fault, Faults
from bot.testing.slack.openid import OpenId
from bot.testing.slack.refusals import Refused
from bot.testing.slack.tickets import Tickets
from bot.testing.slack.values import Json, Workspace
from bot.testing.slack.world import World

Method: TypeAlias = Callable[[World, Workspace, Args], Json]
_FORM: Final = frozenset({"application/x-www-form-urlencoded", "multipart/form-data"})


@dataclass(frozen=True, slots=True)
class _Entry:
    """A method, the scope it needs (more may depend on the channel), and whether it reads JSON bodies."""

    call: Method
    _: KW_ONLY
    scope: str = ""
    reads_json: bool = True


_METHODS: Final[Mapping[str, _Entry]] = MappingProxyType(
    {
        "auth.test": _Entry(reading.auth_test),
        "chat.postMessage": _Entry(chat.post_message, scope="chat:write"),
        "chat.update": _Entry(chat.update, scope="chat:write"),
        "chat.delete": _Entry(chat.delete, scope="chat:write"),
        "chat.postEphemeral": _Entry(chat.post_ephemeral, scope="chat:write"),
        "chat.getPermalink": _Entry(reading.permalink, reads_json=False),
        "conversations.replies": _Entry(reading.replies, reads_json=False),
        "conversations.history": _Entry(reading.history, reads_json=False),
        "conversations.info": _Entry(reading.info, reads_json=False),
        "conversations.open": _Entry(reading.open_conversation),
        "usergroups.users.list": _Entry(reading.usergroup_users, scope="usergroups:read", reads_json=False),
        "users.info": _Entry(reading.user_info, scope="users:read", reads_json=False),
        "files.completeUploadExternal": _Entry(uploads.complete, scope="files:write"),
    }
)


_UNTOLD: Final = frozenset({"token", "client_secret", "code"})
"""Arguments that a record of calls leaves out."""
_BESIDE: Final = frozenset({"files.getUploadURLExternal", "views.open"})
"""Methods that need more than the world: an address, a trigger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """One call as it was made and answered; the token is left out. `answer` is None where no answer got out."""

    method: str
    args: Json
    status: int | None
    answer: Json | None
    committed: bool
    fault: Fault | None = None

    @property
    def ok(self) -> bool:
        """Tell whether the caller was told of success."""
        return self.answer is not None and self.answer.get("ok") is True


@dataclass(slots=True)
class Server:
    """The HTTP side of one simulated Slack; `base` is its own URL once it listens."""

    world: World
    faults: Faults
    tickets: Tickets
    openid: OpenId
    calls: list[ApiCall] = field(default_factory=list)
    base: str = ""
    _runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen on a free loopback port."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.add_routes(
            [
                web.route("*", "/api/{method}", self._api),
                web.post("/upload/v1/{file}/{key}", self._upload),
                web.post("/actions/{rest:.+}", self._response_url),
                web.post("/commands/{rest:.+}", self._response_url),
                web.get("/openid/connect/authorize", self._authorize),
                web.get("/openid/connect/choice", self._choice),
                web.get("/openid/connect/keys", self._keys),
                web.get("/.well-known/openid-configuration", self._configuration),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.base = f"http://{host}:{port}"
        self.tickets.base = self.openid.base = self.base

    async def stop(self) -> None:
        """Listen no more."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    # ── the Web API ──

    async def _api(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        try:
            values, warnings = await _read(request, method)
            values |= _client(request)
            token = _token(request, values)
        except Refused as error:
            return self._answered(method, {}, error.answer(), committed=False)
        args = {name: value for name, value in values.items() if name not in _UNTOLD}
        fault = self.faults.meet(method, args)
        if fault is not None and not fault.after_commit:
            return self._broken(request, method, args, fault, committed=False, answer=None)
        workspace = next((one for one in self.world.workspaces.values() if one.token == token), None)
        answer = self._do(method, workspace, token, Args(values))
        if warnings and answer["ok"]:
            answer |= {
                "warning": ",".join(warnings),
                "response_metadata": {"warnings": warnings, **answer.get("response_metadata", {})},
            }
        committed = answer["ok"] is True
        if fault is not None and fault.kind == "slow":
            await asyncio.sleep(fault.seconds)
        elif fault is not None:
            return self._broken(request, method, args, fault, committed=committed, answer=answer)
        return self._answered(method, args, answer, committed=committed, fault=fault, workspace=workspace)

    def _do(self, method: str, workspace: Workspace | None, token: str, args: Args) -> Json:
        entry = _METHODS.get(method)
        try:
            if method == "openid.connect.token":
                return {"ok": True, **self.openid.token(args)}
            if method == "openid.connect.userInfo":
                return {"ok": True, **self.openid.user_info(token)}
            if entry is None and method not in _BESIDE:
                return {"ok": False, "error": "unknown_method", "req_method": method}
            if workspace is None:
                return {"ok": False, "error": "invalid_auth" if token else "not_authed"}
            if entry is None:
                return {"ok": True, **self._beside(method, workspace, args)}
            if entry.scope:
                reading.require_scope(workspace, entry.scope)
            return {"ok": True, **entry.call(self.world, workspace, args)}
        except Refused as error:
            return error.answer()

    def _beside(self, method: str, workspace: Workspace, args: Args) -> Json:
        if method == "views.open":
            user = self.tickets.use_trigger(args.required("trigger_id"))
            return views.open_view(self.world, workspace, args, user=user)
        reading.require_scope(workspace, "files:write")
        return uploads.ask_where(self.world, workspace, args, base=self.base)

    # ── signing in with Slack ──

    async def _authorize(self, request: web.Request) -> web.Response:
        return self._shown(lambda: web.Response(text=self.openid.page(request.query), content_type="text/html"))

    async def _choice(self, request: web.Request) -> web.Response:
        return self._shown(lambda: web.Response(status=302, headers={"Location": self.openid.choice(request.query)}))

    def _shown(self, make: Callable[[], web.Response]) -> web.Response:
        try:
            return make()
        except Refused as error:
            return web.Response(status=400, text=f"Something went wrong when authorizing this app: {error.error}")

    async def _keys(self, _request: web.Request) -> web.Response:
        return web.json_response(self.openid.keys())

    async def _configuration(self, _request: web.Request) -> web.Response:
        return web.json_response(self.openid.configuration())

    # ── answers ──

    def _answered(
        self,
        method: str,
        args: Json,
        answer: Json,
        *,
        committed: bool,
        fault: Fault | None = None,
        workspace: Workspace | None = None,
    ) -> web.Response:
        self._log(method, args, 200, answer, committed=committed, fault=fault)
        headers = {"X-OAuth-Scopes": ",".join(sorted(workspace.scopes))} if workspace is not None else {}
        return web.json_response(answer, headers=headers)

    def _broken(
        self, request: web.Request, method: str, args: Json, fault: Fault, *, committed: bool, answer: Json | None
    ) -> web.StreamResponse:
        match fault.kind:
            case "rate_limited":
                body: Json = {"ok": False, "error": "ratelimited"}
                self._log(method, args, 429, body, committed=committed, fault=fault)
                return web.json_response(body, status=429, headers={"Retry-After": str(int(fault.seconds))})
            case "refused":
                body = {"ok": False, "error": fault.error}
                self._log(method, args, 200, body, committed=committed, fault=fault)
                return web.json_response(body)
            case "server_error":
                self._log(method, args, 500, None, committed=committed, fault=fault)
                return web.Response(status=500, text="Internal Server Error")
            case _:
                self._log(method, args, None, None, committed=committed, fault=fault)
                if request.transport is not None:
                    request.transport.abort()
                return web.Response()

    def _log(
        self, method: str, args: Json, status: int | None, answer: Json | None, *, committed: bool, fault: Fault | None
    ) -> None:
        call = ApiCall(method=method, args=args, status=status, answer=answer, committed=committed, fault=fault)
        self.calls.append(call)
        self.world.changes.tell()

    # ── uploads and response URLs ──

    async def _upload(self, request: web.Request) -> web.Response:
        if request.content_type == "multipart/form-data":
            part = next(iter((await request.post()).values()), b"")
            content = part.file.read() if isinstance(part, web.FileField) else str(part).encode()
        else:
            content = await request.read()
        if not uploads.put(self.world, request.match_info["file"], request.match_info["key"], content):
            return web.Response(status=400, text="upload failed")
        return web.Response(text=f"OK - {len(content)}")

    async def _response_url(self, request: web.Request) -> web.Response:
        try:
            body = json.loads(await request.read())
        except ValueError:
            return web.Response(status=400, text="invalid_payload")
        if not isinstance(body, dict):
            return web.Response(status=400, text="invalid_payload")
        try:
            self.tickets.respond(request.path, body)
        except Refused as error:
            self._log("response_url", body, 404, error.answer(), committed=False, fault=None)
            return web.json_response(error.answer(), status=404)
        self._log("response_url", body, 200, {"ok": True}, committed=True, fault=None)
        return web.Response(text="ok")


async def _read(request: web.Request, method: str) -> tuple[Json, list[str]]:
    """Read the arguments as Slack does: the query, then a form or JSON. Raises: Refused."""
    values: Json = dict(request.query)
    warnings: list[str] = []
    if request.method != "POST":
        return values, warnings
    kind = request.content_type
    entry = _METHODS.get(method)
    if kind in _FORM:
        values |= {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
    elif kind == "application/json":
        if entry is not None and not entry.reads_json:
            return values, warnings  # read methods don't look at a JSON body
        values |= _json_body(await request.read())
        if request.charset is None:
            warnings.append("missing_charset")
    elif await request.read():
        raise Refused("invalid_post_type")
    return values, warnings


def _json_body(body: bytes) -> Json:
    try:
        value: Any = json.loads(body or b"{}")
    except ValueError:
        raise Refused("invalid_json") from None
    if not isinstance(value, dict):
        raise Refused("json_not_object")
    return {name: item for name, item in value.items() if name != "token"}  # with JSON only the header counts


def _client(request: web.Request) -> Json:
    """Read the client of an app from the header, as it may come for `openid.connect.token`."""
    scheme, _, coded = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return {}
    try:
        client_id, _, client_secret = base64.b64decode(coded, validate=True).decode().partition(":")
    except ValueError:
        raise Refused("invalid_client_id") from None
    return {"client_id": unquote_plus(client_id), "client_secret": unquote_plus(client_secret)}


def _token(request: web.Request, values: Mapping[str, Any]) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        return token.strip()
    return str(values.get("token", ""))
