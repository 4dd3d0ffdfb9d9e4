"""The provider over HTTP: authorize, token, userinfo, revoke, and the tracker's API, all under /demo.

What lives here: what a request must look like and how each refusal is told (RFC 6749, 6750, 7009, 7636). What does not: what is
kept (accounts.py), how the page looks (page.py).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_plus, urlencode

from aiohttp import web

from bot.demo_provider.accounts import Bearer, GrantRefused, Issue, KeyReused, Person
from bot.demo_provider.page import STYLE, TYPED, Consent, consent_page, refusal_page
from bot.demo_provider.registered import CLIENT_ID, CLIENT_NAME, CLIENT_SECRET, SCOPES

if TYPE_CHECKING:
    from bot.demo_provider.accounts import Accounts, Issued

BODY_LIMIT: Final = 16 * 1024
MAX_TITLE: Final = 200
_ASKED: Final = ("response_type", "client_id", "redirect_uri", "scope", "state", "code_challenge", "code_challenge_method")
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_COOKIE_VALUE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_EMAIL: Final = re.compile(r"[^\s@<>\"]{1,64}@[A-Za-z0-9.-]{1,190}")
_PAGE_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "strict-origin",  # with none at all a browser sends "Origin: null" with the form
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_NO_STORE: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class _ToClient(Exception):
    """An authorization that goes back to the client as an error."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


class ProviderRoutes:
    """The provider of a demo at `origin`; `people` are those who can be signed in there with a verified address."""

    def __init__(self, accounts: Accounts, *, origin: str, people: Sequence[Person]) -> None:
        self._accounts = accounts
        self._origin = origin
        self._people = tuple(people)
        self._issuer = f"{origin}/demo"
        self._redirect_uri = f"{origin}/connect/callback/tracker"
        self._cookie = f"moorings_demo_provider_{origin.rpartition(':')[2]}"

    def routes(self) -> list[web.RouteDef]:
        """List the routes."""
        return [
            web.get("/demo/authorize", self._authorize),
            web.post("/demo/authorize", self._decide),
            web.post("/demo/token", self._token),
            web.get("/demo/userinfo", self._userinfo),
            web.post("/demo/revoke", self._revoke),
            web.get("/demo/api/issues", self._list_issues),
            web.post("/demo/api/issues", self._open_issue),
            web.get("/demo/style.css", self._style),
        ]

    # The page: a GET changes nothing

    async def _authorize(self, request: web.Request) -> web.Response:
        asked = {name: request.query.get(name, "") for name in _ASKED}
        if (refused := self._unknown_client(asked)) is not None:
            return refused
        try:
            scopes = _scopes_asked(asked)
        except _ToClient as error:
            return self._back(asked, error=error.error)
        browser = request.cookies.get(self._cookie, "")
        fresh = not _COOKIE_VALUE.fullmatch(browser)
        if fresh:
            browser = secrets.token_urlsafe(32)
        response = _page(self._consent(asked, scopes, browser, who=self._people[0].email))
        if fresh:
            response.set_cookie(self._cookie, browser, path="/demo", httponly=True, samesite="Lax")
        return response

    async def _decide(self, request: web.Request) -> web.Response:
        form = await _read_form(request)
        asked = {name: form.get(name, "") for name in _ASKED}
        if (refused := self._unknown_client(asked)) is not None:
            return refused
        browser = request.cookies.get(self._cookie, "")
        if not self._is_own_form(request, form, asked, browser):
            return _page(
                refusal_page("This form is not from this browser", "Go back to where you came from and begin again."), status=403
            )
        try:
            scopes = _scopes_asked(asked)
        except _ToClient as error:
            return self._back(asked, error=error.error)
        if form.get("decision") != "authorize":
            return self._back(asked, error="access_denied")
        chosen = self._chosen(form)
        if isinstance(chosen, str):
            page = self._consent(
                asked, scopes, browser, who=form.get("who", ""), email=form.get("email", "")[:200], problem=chosen
            )
            return _page(page, status=400)
        code = await self._accounts.grant(
            chosen, scope=" ".join(scopes), redirect_uri=asked["redirect_uri"], challenge=asked["code_challenge"]
        )
        return self._back(asked, code=code)

    def _unknown_client(self, asked: Mapping[str, str]) -> web.Response | None:
        """Refuse on a page of our own what may not be sent anywhere: RFC 6749 section 4.1.2.1."""
        if asked["client_id"] != CLIENT_ID:
            return _page(refusal_page("This app is not known here", "Go back to where you came from."), status=400)
        if asked["redirect_uri"] != self._redirect_uri:
            text = f"Only {self._redirect_uri} is registered. Open the demo at {self._origin} and begin again."
            return _page(refusal_page("This address is not registered for the app", text), status=400)
        return None

    def _consent(
        self, asked: Mapping[str, str], scopes: Sequence[str], browser: str, *, who: str, email: str = "", problem: str = ""
    ) -> str:
        return consent_page(
            Consent(
                CLIENT_NAME,
                [SCOPES[scope] for scope in scopes],
                people=self._people,
                hidden={**asked, "check": self._check(asked, browser)},
                origin=self._origin,
                who=who,
                email=email,
                problem=problem,
            )
        )

    def _check(self, asked: Mapping[str, str], browser: str) -> str:
        """Bind a form to the browser that it was drawn for, and to what it asks."""
        said = json.dumps([browser, *(asked[name] for name in _ASKED)]).encode()
        return hmac.new(self._accounts.form_key, said, hashlib.sha256).hexdigest()

    def _is_own_form(self, request: web.Request, form: Mapping[str, str], asked: Mapping[str, str], browser: str) -> bool:
        origins = request.headers.getall("Origin", [])
        sites = request.headers.getall("Sec-Fetch-Site", [])
        return (
            origins in ([], [self._origin])
            and sites in ([], ["same-origin"])
            and _COOKIE_VALUE.fullmatch(browser) is not None
            and _same(form.get("check", ""), self._check(asked, browser))
        )

    def _chosen(self, form: Mapping[str, str]) -> Person | str:
        """Return who is signed in, or what is wrong with what was filled in."""
        email = form.get("email", "").strip()
        if form.get("who") != TYPED:
            if email:
                return "An address was typed, but somebody from the list is chosen. Choose “Somebody else”, or empty the field."
            known = [person for person in self._people if person.email == form.get("who")]
            return known[0] if known else "Choose who you are."
        if not _EMAIL.fullmatch(email):
            return "Type an email address, such as you@example.test."
        return Person(email, email.partition("@")[0], verified=False)

    def _back(self, asked: Mapping[str, str], **answer: str) -> web.Response:
        """Send the browser back to the one registered address."""
        query = {**answer, "iss": self._issuer, **({"state": asked["state"]} if asked["state"] else {})}
        return web.Response(status=303, headers={**_PAGE_HEADERS, "Location": f"{self._redirect_uri}?{urlencode(query)}"})

    async def _style(self, _request: web.Request) -> web.Response:
        return web.Response(text=STYLE, content_type="text/css", headers={"Cache-Control": "no-cache"})

    # What the app calls

    async def _token(self, request: web.Request) -> web.Response:
        form = await _read_form(request)
        if not _is_client(request, form):
            return _not_the_client()
        try:
            issued = await self._issue(form)
        except GrantRefused as error:
            return _oauth_error(error.error, error.description)
        return web.json_response(
            {
                "access_token": issued.access_token,
                "token_type": "Bearer",
                "expires_in": issued.expires_in,
                "refresh_token": issued.refresh_token,
                "scope": issued.scope,
            },
            headers=_NO_STORE,
        )

    async def _issue(self, form: Mapping[str, str]) -> Issued:
        match form.get("grant_type"):
            case "authorization_code":
                return await self._accounts.exchange(
                    form.get("code", ""), verifier=form.get("code_verifier", ""), redirect_uri=form.get("redirect_uri", "")
                )
            case "refresh_token":
                return await self._accounts.refresh(form.get("refresh_token", ""))
            case _:
                raise GrantRefused("unsupported_grant_type", "give authorization_code or refresh_token")

    async def _userinfo(self, request: web.Request) -> web.Response:
        bearer = await self._bearer(request)
        if isinstance(bearer, web.Response):
            return bearer
        person = bearer.person
        told = {"sub": f"demo-{person.email}", "name": person.name, "email": person.email, "email_verified": person.verified}
        return web.json_response(told, headers=_NO_STORE)

    async def _revoke(self, request: web.Request) -> web.Response:
        form = await _read_form(request)
        if not _is_client(request, form):
            return _not_the_client()
        await self._accounts.revoke(form.get("token", ""))
        return web.Response(headers=_NO_STORE)

    async def _list_issues(self, request: web.Request) -> web.Response:
        bearer = await self._bearer(request, scope="issues")
        if isinstance(bearer, web.Response):
            return bearer
        return web.json_response([_shown(issue) for issue in await self._accounts.issues()], headers=_NO_STORE)

    async def _open_issue(self, request: web.Request) -> web.Response:
        bearer = await self._bearer(request, scope="issues")
        if isinstance(bearer, web.Response):
            return bearer
        title = _title(await _read_body(request))
        if title is None:
            return web.json_response({"error": f"title has to be a text of 1 to {MAX_TITLE} characters"}, status=422)
        key = request.headers.get("Idempotency-Key") or secrets.token_hex(16)
        try:
            issue = await self._accounts.open_issue(bearer.person, title, key=key[:200])
        except KeyReused as error:
            return web.json_response({"error": str(error)}, status=409)
        return web.json_response(_shown(issue), status=201, headers=_NO_STORE)

    async def _bearer(self, request: web.Request, *, scope: str | None = None) -> Bearer | web.Response:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        bearer = await self._accounts.bearer(token.strip()) if kind.lower() == "bearer" else None
        if bearer is None:
            return _challenge(401, "invalid_token", "the token is over, revoked or missing")
        if scope is not None and scope not in bearer.scopes:
            return _challenge(403, "insufficient_scope", f"this needs the scope {scope}", scope=scope)
        return bearer


def _scopes_asked(asked: Mapping[str, str]) -> list[str]:
    """Return what is asked for, in order. Raises: _ToClient."""
    if asked["response_type"] != "code":
        raise _ToClient("unsupported_response_type")
    if asked["code_challenge_method"] != "S256" or not _CHALLENGE.fullmatch(asked["code_challenge"]):
        raise _ToClient("invalid_request")  # RFC 7636 section 4.4.1
    scopes = list(dict.fromkeys(asked["scope"].split()))
    if not scopes or not set(scopes) <= set(SCOPES):
        raise _ToClient("invalid_scope")
    return scopes


def _is_client(request: web.Request, form: Mapping[str, str]) -> bool:
    """Check the client's secret, in the header or in the form but not in both: RFC 6749 section 2.3."""
    kind, _, value = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "basic":
        return not kind and form.get("client_id") == CLIENT_ID and _same(form.get("client_secret", ""), CLIENT_SECRET)
    try:
        name, _, secret = base64.b64decode(value.strip(), validate=True).decode().partition(":")
    except ValueError:  # no base64, no ASCII, no UTF-8
        return False
    return "client_secret" not in form and unquote_plus(name) == CLIENT_ID and _same(unquote_plus(secret), CLIENT_SECRET)


def _not_the_client() -> web.Response:
    response = _oauth_error("invalid_client", "this is not the client's id and secret", status=401)
    response.headers["WWW-Authenticate"] = 'Basic realm="demo"'
    return response


def _oauth_error(error: str, description: str, *, status: int = 400) -> web.Response:
    return web.json_response({"error": error, "error_description": description}, status=status, headers=_NO_STORE)


def _challenge(status: int, error: str, description: str, *, scope: str = "") -> web.Response:
    response = _oauth_error(error, description, status=status)
    wanted = f', scope="{scope}"' if scope else ""
    response.headers["WWW-Authenticate"] = f'Bearer realm="demo", error="{error}"{wanted}'
    return response


def _page(html: str, *, status: int = 200) -> web.Response:
    return web.Response(text=html, status=status, content_type="text/html", headers=_PAGE_HEADERS)


def _shown(issue: Issue) -> dict[str, object]:
    return {"number": issue.number, "title": issue.title, "author": issue.author, "author_email": issue.author_email}


def _title(body: bytes) -> str | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    title = found.get("title") if isinstance(found, dict) else None
    return title.strip() if isinstance(title, str) and 0 < len(title.strip()) <= MAX_TITLE and title.isprintable() else None


async def _read_form(request: web.Request) -> dict[str, str]:
    """Read a form's fields; one that comes twice counts as none (RFC 6749 section 3.2)."""
    if request.content_type != "application/x-www-form-urlencoded":
        raise web.HTTPUnsupportedMediaType
    await _read_body(request)
    fields = await request.post()
    return {name: value for name, value in fields.items() if isinstance(value, str) and len(fields.getall(name)) == 1}


async def _read_body(request: web.Request) -> bytes:
    if (request.content_length or 0) > BODY_LIMIT:
        raise web.HTTPRequestEntityTooLarge(max_size=BODY_LIMIT, actual_size=request.content_length or 0)
    body = await request.read()
    if len(body) > BODY_LIMIT:
        raise web.HTTPRequestEntityTooLarge(max_size=BODY_LIMIT, actual_size=len(body))
    return body


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted.encode())
