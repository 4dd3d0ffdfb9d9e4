"""One provider, asked for one connection.

What lives here: the calls, each whole: the request, the check of the answer, the value. What does not: their parts (their own
modules), and whether a state, a code or a token was used before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, urlencode

# `prepare_grant_uri` isn't used: it takes no plain-http loopback but by an environment variable for the whole process. Whether
# an address may be used is judged by `Outgoing`.
from oauthlib.common import add_params_to_uri
from oauthlib.oauth2 import WebApplicationClient
from pydantic_core import to_json
from yarl import URL

from bot.connections.connection import OAuthConnection
from bot.connections.protocol.callbacks import read_callback
from bot.connections.protocol.calls import allowed, call
from bot.connections.protocol.clients import Clients
from bot.connections.protocol.devices import read_start
from bot.connections.protocol.discovery import describe_resource, discover
from bot.connections.protocol.errors import ProviderDown, ProviderNonsense, ProviderRefused
from bot.connections.protocol.grants import DEVICE, authenticated, read_answer, read_grant, token_request
from bot.connections.protocol.identity import fitting, key_id, read_keys, verify
from bot.connections.protocol.people import OPENID, read_account
from bot.connections.protocol.ports import Registrations
from bot.connections.protocol.reading import read_object
from bot.connections.protocol.values import Account, Client, ClientAuth, DeviceStart, Endpoints, Pending, TokenGrant
from bot.outgoing import Outgoing

FRESH: Final = 3600.0
"""Seconds that a provider's description and keys are kept."""
SOON: Final = 60.0
"""Seconds after which a description that couldn't be read again is asked for again."""
SEARCH: Final = 25.0
"""Seconds that finding out where to ask may take altogether: somebody may hold a lease meanwhile."""
BY_APP: Final = "{client_id}"
"""What stands in a revoke_url where tokens are ended in GitHub's way."""
_TOKEN: Final = "the provider's token endpoint"  # noqa: S105 - words
_ASKED: Final = frozenset(
    {
        "response_type",
        "client_id",
        "redirect_uri",
        "state",
        "code_challenge",
        "code_challenge_method",
        "scope",
        "nonce",
        "resource",
    }
)
_LATER: Final = frozenset({"server_error", "temporarily_unavailable"})


class Provider:
    """Ask one provider for one connection; keeps what was discovered for an hour, and nothing else.

    Each call may raise `ProviderDown`, `ProviderRefused`, `ProviderNonsense` or `NoClient`, and nothing else. `public_url` is
    the app's own address; the redirect address of a connection is `<public_url>/connect/callback/<name>`, its own, so that one
    provider's answer can't be taken for another's.

    Without `pkce`, for a platform that refuses it (Slack's, to apps with a secret), the nonce binds the code to the sign-in: then
    an exchange fails unless it brings an id_token with that nonce.
    """

    def __init__(
        self,
        connection: OAuthConnection,
        outgoing: Outgoing,
        *,
        public_url: str,
        registrations: Registrations | None = None,
        pkce: bool = True,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.connection = connection
        self._outgoing = outgoing
        self._public_url = public_url.rstrip("/")
        self._clients = Clients(connection, outgoing, public_url=self._public_url, registrations=registrations, now=now)
        self._pkce = pkce
        self._now = now
        self._found: tuple[float, Endpoints] | None = None
        self._keys: tuple[float, tuple[Mapping[str, Any], ...]] | None = None

    @property
    def redirect_uri(self) -> str:
        """Where the provider sends people back to for this connection."""
        return self.connection.redirect_uri(self._public_url)

    async def endpoints(self) -> Endpoints:
        """Return where to ask for what: as written, else discovered."""
        if self._found is None or self._found[0] <= self._now():
            try:
                found = await self._discover()
            except ProviderDown:
                if self._found is None:
                    raise
                self._found = (self._now() + SOON, self._found[1])  # its description is down, which it may not be itself
            else:
                self._found = (self._now() + FRESH, found)
        return self._found[1]

    async def client(self) -> Client:
        """Return who the app is there: as written, else by its metadata document, else registered once and kept."""
        return await self._clients.client(await self.endpoints())

    async def authorize_url(
        self, *, state: str, verifier: str, redirect_uri: str, scopes: Sequence[str], nonce: str | None = None
    ) -> str:
        """Return where to send the person: code flow with PKCE S256; `nonce` goes along where `openid` is asked for."""
        endpoints, client = await self.endpoints(), await self.client()
        place = _page(endpoints.authorize)
        params = {
            **self.connection.extra,
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": redirect_uri,
            "state": state,
            **(_challenge(client, verifier) if self._pkce else {}),
            **self._scope(scopes),
            **_resource(endpoints),
        }
        if nonce is not None and "openid" in scopes:
            params["nonce"] = nonce
        return str(add_params_to_uri(place, list(params.items())))

    async def check_callback(self, params: Mapping[str, str]) -> str:
        """Return the code of a callback whose state the caller has consumed: `iss` is checked first, then an error is raised."""
        return read_callback(params, await self.endpoints())

    async def exchange(self, code: str, *, verifier: str, redirect_uri: str, nonce: str | None = None) -> TokenGrant:
        """Redeem a code, once; a failure with `sent` means that it may be used up.

        What else is needed is fetched before, so that nothing but the exchange itself can fail once the code is spent.
        """
        endpoints, client = await self.endpoints(), await self.client()
        verified = endpoints.issuer is not None and endpoints.jwks is not None
        if verified:
            await self._signing_keys(endpoints)
        fields = {"code": code, "redirect_uri": redirect_uri, **_resource(endpoints)}
        fields |= {"code_verifier": verifier} if self._pkce else {}
        answer = await self._ask_token(client, "authorization_code", fields, secrets=(code, verifier))
        grant = read_grant(answer)
        id_token = answer.token("id_token") if verified else None
        if not self._pkce and (id_token is None or nonce is None):
            raise ProviderNonsense(
                "nothing binds the provider's answer to this sign-in: it holds no id_token that could be checked"
            )
        if id_token is None:
            return grant
        claims = await self._claims(id_token, endpoints, client, nonce)
        return replace(grant, id_claims=claims)

    async def refresh(self, refresh_token: str, *, scopes: Sequence[str] = ()) -> TokenGrant:
        """Renew a grant. `refresh_token` of the answer is None where the old one goes on.

        An id_token of the answer is not read: a rotated refresh token would be lost with it, and it proves nobody again.
        """
        endpoints, client = await self.endpoints(), await self.client()
        fields = {"refresh_token": refresh_token, **self._scope(scopes), **_resource(endpoints)}
        return read_grant(await self._ask_token(client, "refresh_token", fields, secrets=(refresh_token,)))

    async def client_credentials(self, scopes: Sequence[str]) -> TokenGrant:
        """Get a token of the app itself."""
        endpoints, client = await self.endpoints(), await self.client()
        return read_grant(
            await self._ask_token(client, "client_credentials", {**self._scope(scopes), **_resource(endpoints)}, secrets=())
        )

    async def revoke(self, token: str, hint: str = "refresh_token") -> bool:
        """End a token at the provider (RFC 7009); False where it offers no such thing. A token it doesn't know is ended."""
        endpoints, client = await self.endpoints(), await self.client()
        if endpoints.revoke is None:
            return False
        what = "the provider's revocation"
        if BY_APP in endpoints.revoke:
            return await self._revoke_by_app(endpoints.revoke, client, token, hint)
        headers, fields = authenticated(client, {"token": token, "token_type_hint": hint})
        fetched = await call(self._outgoing, "POST", endpoints.revoke, what=what, headers=headers, body=_form(fields))
        if not fetched.body.strip() and fetched.status < 300:  # as the standard has it: 200 and no word
            return True
        try:
            read_answer(fetched, what, (token,))
        except ProviderRefused as refused:
            if refused.error == "invalid_grant":  # Slack's token_revoked: it is what was wanted
                return True
            raise
        except ProviderNonsense:
            if fetched.status >= 300:
                raise
        return True

    async def _revoke_by_app(self, place: str, client: Client, token: str, hint: str) -> bool:
        """End an access token in GitHub's way (REST, "Delete an app token"): no form, and only with the app's secret."""
        if client.secret is None or hint != "access_token":
            return False
        what = "the provider's revocation"
        headers, _ = authenticated(replace(client, auth=ClientAuth.BASIC), {})
        headers["Content-Type"] = "application/json"
        url = place.replace(BY_APP, quote(client.client_id, safe=""))
        fetched = await call(self._outgoing, "DELETE", url, what=what, headers=headers, body=to_json({"access_token": token}))
        if fetched.status < 300 or fetched.status in (404, 422):  # 404 and 422: it knows no such token
            return True
        raise (
            ProviderRefused("invalid_client") if fetched.status == 401 else ProviderNonsense(f"{what} answered {fetched.status}")
        )

    async def account(self, grant: TokenGrant) -> Account | None:
        """Return whose grant it is; None where the provider says it nowhere.

        What an id_token says needs no further question where it tells an address; userinfo must be of the same subject.
        """
        endpoints, source = await self.endpoints(), self.connection.account
        proven = read_account(grant.id_claims, OPENID) if grant.id_claims is not None and source is None else None
        if endpoints.userinfo is None or (proven is not None and proven.email is not None):
            return proven
        source = source or OPENID
        what = "the provider's account information"
        fetched = await call(
            self._outgoing,
            "POST" if source.body is not None else "GET",
            endpoints.userinfo,
            what=what,
            headers={
                **({"Content-Type": "application/json"} if source.body is not None else {}),
                **source.headers,
                "Authorization": f"Bearer {grant.access_token}",
            },
            body=source.body,
        )
        if fetched.status >= 400 and proven is not None:
            return proven
        if fetched.status == 401:
            raise ProviderRefused("invalid_token")
        found = read_account(read_answer(fetched, what, (grant.access_token,)).fields, source)
        if proven is not None and found.subject != proven.subject:
            raise ProviderNonsense(f"{what} is of another account (OpenID Connect Core 5.3.2)")
        return found

    async def start_device(self, scopes: Sequence[str]) -> DeviceStart:
        """Begin a device flow (RFC 8628)."""
        endpoints, client = await self.endpoints(), await self.client()
        place = _offered(endpoints.device, "device flow")
        what = "the provider's device flow"
        headers, fields = authenticated(client, {**self._scope(scopes), **_resource(endpoints)})
        fetched = await call(self._outgoing, "POST", place, what=what, headers=headers, body=_form(fields))
        return read_start(read_answer(fetched, what, ()), self._outgoing, named_by=place)

    async def poll_device(self, device_code: str) -> TokenGrant | Pending:
        """Ask once whether the person has finished; no sooner than the interval says."""
        client = await self.client()
        try:
            answer = await self._ask_token(client, DEVICE, {"device_code": device_code}, secrets=(device_code,))
        except ProviderRefused as refused:
            if refused.error in ("authorization_pending", "slow_down"):
                return Pending(refused.error == "slow_down")
            raise
        return read_grant(answer)

    async def _discover(self) -> Endpoints:
        made, public_url = self.connection, self._public_url
        named = {
            name: made.url(f"{name}_url", public_url) for name in ("authorize", "token", "userinfo", "revoke", "device", "jwks")
        }
        given: dict[str, Any] = {
            name: allowed(self._outgoing, url, named_by=None, what=f"{name}_url")
            for name, url in named.items()
            if url is not None
        }
        issuer, resource = made.url("issuer", public_url), made.url("resource", public_url)
        whole = "token" in given and ("authorize" in given or "device" in given or made.grant == "client_credentials")
        if whole or (issuer is None and resource is None):
            return Endpoints(issuer, **given, resource=resource)
        with suppress(TimeoutError):
            async with asyncio.timeout(SEARCH):
                return await self._found_out(issuer, resource, given)
        raise ProviderDown("finding the provider's description took too long", sent=False)

    async def _found_out(self, issuer: str | None, resource: str | None, given: Mapping[str, Any]) -> Endpoints:
        scopes: tuple[str, ...] = ()
        if issuer is None and resource is not None:
            described = await describe_resource(self._outgoing, resource)
            issuer, resource, scopes = described.issuer, described.identifier, described.scopes
        found = await discover(self._outgoing, issuer or "", openid_first=self.connection.resource is None)
        return replace(found, **given, resource=resource, scopes=scopes)

    async def _ask_token(self, client: Client, grant_type: str, fields: dict[str, str], *, secrets: tuple[str, ...]) -> Any:
        endpoints = await self.endpoints()
        headers, body = token_request(client, grant_type, fields)
        fetched = await call(
            self._outgoing, "POST", _offered(endpoints.token, "token endpoint"), what=_TOKEN, headers=headers, body=body
        )
        secrets = (*secrets, *([client.secret] if client.secret else ()))
        try:
            return read_answer(fetched, _TOKEN, secrets)
        except ProviderRefused as refused:
            if refused.error == "invalid_client":
                await self._clients.refused(client, endpoints)
            if refused.error not in _LATER:
                raise
        raise ProviderDown(f"{_TOKEN} is not able to answer now", sent=True)

    async def _signing_keys(self, endpoints: Endpoints, *, again: bool = False) -> tuple[Mapping[str, Any], ...]:
        if again or self._keys is None or self._keys[0] <= self._now():
            what = "the provider's keys"
            fetched = await call(self._outgoing, "GET", _offered(endpoints.jwks, "list of keys"), what=what)
            if fetched.status >= 400:
                raise ProviderNonsense(f"{what}: answered {fetched.status}")
            self._keys = (self._now() + FRESH, read_keys(read_object(fetched, what)))
        return self._keys[1]

    async def _claims(self, id_token: str, endpoints: Endpoints, client: Client, nonce: str | None) -> Mapping[str, Any]:
        algorithm, kid = key_id(id_token)
        keys = await self._signing_keys(endpoints)
        if not fitting(keys, algorithm, kid):  # the provider has changed its keys since
            keys = await self._signing_keys(endpoints, again=True)
        issuer = endpoints.issuer or ""
        return verify(id_token, keys, issuer=issuer, client_id=client.client_id, nonce=nonce, now=self._now())

    def _scope(self, scopes: Sequence[str]) -> dict[str, str]:
        return {"scope": self.connection.scope_separator.join(scopes)} if scopes else {}


def _offered(place: str | None, what: str) -> str:
    if place is None:
        raise ProviderNonsense(f"the provider has no {what}")
    return place


def _challenge(client: Client, verifier: str) -> dict[str, str]:
    if not 43 <= len(verifier) <= 128:
        raise ValueError("a verifier has 43 to 128 characters (RFC 7636 4.1)")
    challenge: str = WebApplicationClient(client.client_id).create_code_challenge(verifier, "S256")
    return {"code_challenge": challenge, "code_challenge_method": "S256"}


def _page(place: str | None) -> str:
    """Return where to send people, if nothing of what will be asked there stands in it already (RFC 6749 3.1)."""
    found = _offered(place, "page to sign in at")
    if "#" in found or _ASKED & URL(found).query.keys():
        raise ProviderNonsense("the provider's page to sign in at holds a part of the question already")
    return found


def _resource(endpoints: Endpoints) -> dict[str, str]:
    return {"resource": endpoints.resource} if endpoints.resource is not None else {}


def _form(fields: Mapping[str, str]) -> bytes:
    return urlencode(fields).encode()
