"""Pages under /connect/: the way from a link in a private message to a provider and back.

What lives here: routes, cookies, headers, where a form may come from. What does not: what a request leads to
(bot/signins/), how a page looks and the headers it goes out with (bot/server/pages/).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from aiohttp import web

from bot.errors import NotReady, Problem
from bot.server.bodies import read_bytes
from bot.server.errors import new_error_id
from bot.server.limits import Limits
from bot.server.pages import MARK_PATH, PAGE_HEADERS, STYLE_PATH, Asset, draw, mark, style
from bot.signins.api import SignInApi
from bot.signins.page import Page, PageKind
from bot.signins.values import Cookie, Done, Go
from durable_core.errors import Unavailable

_log = logging.getLogger("bot.server")
CLIENT_PATH: Final = "/connect/client.json"
"""The app's own description as a client (OAuth Client ID Metadata Document)."""
_FORM_BYTES: Final = 4_096
_FORM: Final = "application/x-www-form-urlencoded"

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.Response]]


class ConnectRoutes:
    """GET and HEAD only look, but for the two that a provider or a platform sends a browser back to with a state."""

    def __init__(self, sign_ins: SignInApi, *, limits: Limits) -> None:
        self._sign_ins = sign_ins
        self._limits = limits

    def routes(self) -> list[web.RouteDef]:
        """List the routes. Those with a fixed path come first: a link's token could be spelt like one of them."""
        return [
            web.get(STYLE_PATH, self.style),
            web.get(MARK_PATH, self.mark),
            web.get(CLIENT_PATH, self.client),
            web.get("/connect/identity", self._shielded(self.identified)),
            web.get("/connect/callback/{connection}", self._shielded(self.returned)),
            web.get("/connect/done/{attempt}", self._shielded(self.done)),
            web.get("/connect/{token}", self._shielded(self.view)),
            web.post("/connect/{token}", self._shielded(self.begin)),
            web.post("/connect/{token}/decline", self._shielded(self.decline)),
        ]

    # ── pages ──

    async def view(self, request: web.Request) -> web.Response:
        """GET /connect/TOKEN: what is asked, or what came of it; nothing is changed, nor is a cookie set."""
        return self._page(await self._sign_ins.view(request.match_info["token"], request.cookies))

    async def begin(self, request: web.Request) -> web.Response:
        """POST /connect/TOKEN: the person goes on. Leaves by a page, since `form-action 'self'` would stop a redirect."""
        if not self._from_our_page(request):
            return self._page(_FOREIGN, status=HTTPStatus.FORBIDDEN)
        form = await self._form(request)
        found = await self._sign_ins.begin(request.match_info["token"], request.cookies, form)
        if isinstance(found, Go):
            return self._with(self._page(found.page), found.cookie)
        return self._found(found)

    async def decline(self, request: web.Request) -> web.Response:
        """POST /connect/TOKEN/decline: the person says no."""
        if not self._from_our_page(request):
            return self._page(_FOREIGN, status=HTTPStatus.FORBIDDEN)
        return self._page(await self._sign_ins.decline(request.match_info["token"], request.cookies))

    async def identified(self, request: web.Request) -> web.Response:
        """GET /connect/identity: back from the chat platform's sign-in."""
        if request.method == "HEAD" or (params := _params(request)) is None:
            return self._page(_NOT_FOUND)
        found = await self._sign_ins.identified(params, request.cookies)
        return self._with(_see_other(found.url), found.cookie) if isinstance(found, Go) else self._found(found)

    async def returned(self, request: web.Request) -> web.Response:
        """GET /connect/callback/CONNECTION: back from the provider; what came of it has an address without code and state."""
        if request.method == "HEAD" or (params := _params(request)) is None:
            return self._page(_NOT_FOUND)
        return self._found(await self._sign_ins.returned(request.match_info["connection"], params, request.cookies))

    async def done(self, request: web.Request) -> web.Response:
        """GET /connect/done/ATTEMPT: what came of it."""
        return self._page(await self._sign_ins.page(request.match_info["attempt"], request.cookies))

    async def style(self, request: web.Request) -> web.Response:
        """GET /connect/style.css."""
        return _file(request, style())

    async def mark(self, request: web.Request) -> web.Response:
        """GET /connect/mark.svg."""
        return _file(request, mark())

    async def client(self, request: web.Request) -> web.Response:
        """GET /connect/client.json: who the app is, for providers that read such a document in place of a registration."""
        text = json.dumps(self._sign_ins.client_document())
        headers = {"Cache-Control": "public, max-age=3600", "X-Content-Type-Options": "nosniff"}
        return web.Response(text=text, content_type="application/json", headers=headers)

    # ── parts ──

    def _shielded(self, handler: Handler) -> Handler:
        """Answer with a page whatever goes wrong: nobody in a browser reads JSON."""

        async def shielded(request: web.Request) -> web.Response:
            try:
                return await handler(request)
            except Unavailable:
                page, status = _AWAY, HTTPStatus.SERVICE_UNAVAILABLE
            except Problem as error:
                page, status = Page(kind=PageKind.FAILED, reason=error.message), HTTPStatus(error.status)
            except NotReady as error:
                page, status = Page(kind=PageKind.FAILED, reason=str(error)), HTTPStatus.SERVICE_UNAVAILABLE
            except Exception as error:  # noqa: BLE001 - logged, and told as an id
                error_id = new_error_id()
                _log.exception("%s %s failed (%s)", request.method, _pattern(request), error_id, exc_info=error)
                page = Page(kind=PageKind.FAILED, reason="Something went wrong here.", error_id=error_id, again=True)
                status = HTTPStatus.INTERNAL_SERVER_ERROR
            return self._page(page, status=status)

        return shielded

    def _found(self, found: Go | Done | Page) -> web.Response:
        match found:
            case Done(attempt_id=attempt_id, cookie=cookie):
                return self._with(_see_other(f"/connect/done/{attempt_id}"), cookie)
            case Go():
                return self._with(_see_other(found.url), found.cookie)
            case Page():
                return self._page(found)

    def _page(self, page: Page, *, status: HTTPStatus | None = None) -> web.Response:
        answer = web.Response(text=draw(page), status=status or page.status, content_type="text/html", headers=PAGE_HEADERS)
        answer.headers["Vary"] = "Cookie"
        return answer

    def _with(self, answer: web.Response, cookie: Cookie | None) -> web.Response:
        if cookie is not None:
            secure = self._sign_ins.public_url().startswith("https://")
            answer.set_cookie(
                cookie.name, cookie.value, max_age=cookie.seconds, path="/", secure=secure, httponly=True, samesite="Lax"
            )
        return answer

    def _from_our_page(self, request: web.Request) -> bool:
        """Whether a form was sent by a page of this site: by Fetch Metadata, or where a browser sends none, by Origin.

        Our pages send no referrer, so that browsers without Fetch Metadata say `Origin: null`, which any page can have: refused.
        """
        sites = request.headers.getall("Sec-Fetch-Site", [])
        if sites:
            return sites == ["same-origin"]
        return request.headers.getall("Origin", []) == [_origin(self._sign_ins.public_url())]

    async def _form(self, request: web.Request) -> dict[str, str]:
        if request.content_type != _FORM:
            raise Problem(415, "bad_request", "This form came in a way that can't be read. Open the link again.")
        body = await read_bytes(request, limit=_FORM_BYTES, seconds=self._limits.body_time)
        try:
            return dict(parse_qsl(body.decode("utf-8", "replace"), max_num_fields=20))
        except ValueError:
            raise Problem(422, "bad_request", "This form has more fields than it should. Open the link again.") from None


_NOT_FOUND: Final = Page(kind=PageKind.NOT_FOUND)
_AWAY: Final = Page(kind=PageKind.FAILED, reason="The app's database doesn't answer right now. Load this page again in a moment.")
_FOREIGN: Final = Page(
    kind=PageKind.FAILED,
    reason="This didn't come from the page behind your link, so nothing was done. Open the link in an up-to-date browser.",
)


def _params(request: web.Request) -> dict[str, str] | None:
    """Return the query of a callback; None where one name comes twice, which no honest provider sends (RFC 6749 3.1)."""
    query = request.rel_url.query
    return dict(query) if len(set(query)) == len(query) else None


def _file(request: web.Request, asset: Asset) -> web.Response:
    headers = asset.headers(request.query.get("v"))
    return web.Response(body=asset.body, content_type=asset.content_type, charset="utf-8", headers=headers)


def _see_other(url: str) -> web.Response:
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={**PAGE_HEADERS, "Location": url})


def _pattern(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "(unknown path)"


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()
