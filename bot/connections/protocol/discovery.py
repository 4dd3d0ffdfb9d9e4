"""Where a provider says of itself what it has (RFC 8414, OpenID Connect Discovery, RFC 9728 for MCP servers).

What lives here: well-known addresses and what documents there must say. What does not: addresses that an author wrote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from yarl import URL

from bot.connections.protocol.calls import allowed, call
from bot.connections.protocol.errors import ProviderNonsense
from bot.connections.protocol.reading import Answer, read_object
from bot.connections.protocol.values import Endpoints
from bot.outgoing import Outgoing
from bot.outgoing.origins import origin_of

_SERVER: Final = "oauth-authorization-server"
_OPENID: Final = "openid-configuration"
_RESOURCE: Final = "oauth-protected-resource"
_ADDRESSES: Final = {
    "authorize": "authorization_endpoint",
    "token": "token_endpoint",
    "userinfo": "userinfo_endpoint",
    "revoke": "revocation_endpoint",
    "device": "device_authorization_endpoint",
    "jwks": "jwks_uri",
    "registration": "registration_endpoint",
}
_METADATA_IN: Final = re.compile(r"""resource_metadata\s*=\s*(?:"([^"\\]{1,2000})"|([^\s,"]{1,2000}))""", re.IGNORECASE)


def inserted(url: str, name: str) -> str:
    """Return a well-known address with the path behind it (RFC 8414 3.1, RFC 9728 3.1)."""
    found = URL(url)
    return str(found.with_path(f"/.well-known/{name}{found.raw_path.rstrip('/')}", encoded=True).with_query(None))


def appended(url: str, name: str) -> str:
    """Return a well-known address behind the path (OpenID Connect Discovery 4)."""
    return f"{url.rstrip('/')}/.well-known/{name}"


async def discover(outgoing: Outgoing, issuer: str, *, openid_first: bool = True) -> Endpoints:
    """Read an issuer's own description. It must name that very issuer, to the last character (RFC 8414 3.3).

    Raises: ProviderDown, ProviderNonsense.
    """
    if "?" in issuer or "#" in issuer:
        raise ProviderNonsense("the provider's issuer is none: it holds a query (RFC 8414 2)")
    places = [appended(issuer, _OPENID), inserted(issuer, _SERVER), inserted(issuer, _OPENID)]
    if not openid_first:
        places = [places[1], places[2], places[0]]
    problem: ProviderNonsense | None = None
    for place in dict.fromkeys(places):
        try:
            answer = await _document(outgoing, place, "the provider's description")
            if answer is not None:
                return read_endpoints(outgoing, answer, issuer)
        except ProviderNonsense as error:  # some serve their front page everywhere; the first complaint is the telling one
            problem = problem or error
    raise problem or ProviderNonsense("the provider describes itself at none of the well-known addresses")


async def _document(outgoing: Outgoing, url: str, what: str) -> Answer | None:
    fetched = await call(outgoing, "GET", url, what=what)
    return None if fetched.status >= 400 else read_object(fetched, what)


def read_endpoints(outgoing: Outgoing, answer: Answer, issuer: str) -> Endpoints:
    """Read an issuer's description of itself.

    Raises: ProviderNonsense.
    """
    if answer.fields.get("issuer") != issuer:
        raise ProviderNonsense("the provider's description names another issuer (a slash at the end counts)")
    found: dict[str, Any] = {
        field: allowed(outgoing, url, named_by=issuer, what=f"the {name} of the provider's description")
        for field, name in _ADDRESSES.items()
        if (url := answer.token(name)) is not None
    }
    methods = answer.texts("code_challenge_methods_supported")
    if methods and "S256" not in methods:
        raise ProviderNonsense("the provider does not know PKCE with S256")
    return Endpoints(
        issuer,
        **found,
        names_issuer=answer.flag("authorization_response_iss_parameter_supported"),
        auth_methods=answer.texts("token_endpoint_auth_methods_supported"),
        signing=answer.texts("id_token_signing_alg_values_supported"),
        takes_documents=answer.flag("client_id_metadata_document_supported"),
    )


class Resource:
    """What an MCP server says of itself: who issues its tokens, what it is called there, what it needs."""

    __slots__ = ("identifier", "issuer", "scopes")

    def __init__(self, issuer: str, identifier: str, scopes: tuple[str, ...]) -> None:
        self.issuer = issuer
        self.identifier = identifier
        self.scopes = scopes


async def describe_resource(outgoing: Outgoing, resource: str) -> Resource:
    """Find who issues an MCP server's tokens: as its 401 says, else at the well-known addresses, else its own origin.

    Raises: ProviderDown, ProviderNonsense.
    """
    problem: ProviderNonsense | None = None
    places = [inserted(resource, _RESOURCE), inserted(str(URL(resource).origin()), _RESOURCE)]
    challenged = await _challenged(outgoing, resource)
    for place in dict.fromkeys([*([challenged] if challenged else []), *places]):
        try:
            answer = await _document(outgoing, place, "the server's description")
            if answer is not None:
                return read_resource(outgoing, answer, resource)
        except ProviderNonsense as error:
            problem = problem or error
    if problem is not None:
        raise problem
    return Resource(str(URL(resource).origin()), resource, ())  # MCP before 2025-06-18: the server is its own issuer


async def _challenged(outgoing: Outgoing, resource: str) -> str | None:
    """Ask the server without a token; returns where its refusal says that it is described."""
    fetched = await call(outgoing, "GET", resource, what="the server", headers={"Accept": "application/json, text/event-stream"})
    if fetched.status != 401:
        return None
    found = _METADATA_IN.search(_challenge(fetched.headers))
    url = (found[1] or found[2]) if found else None
    return allowed(outgoing, url, named_by=resource, what="the server's description") if url else None


def _challenge(headers: Mapping[str, str]) -> str:
    several = getattr(headers, "getall", None)
    return ", ".join(several("WWW-Authenticate", ())) if several else headers.get("WWW-Authenticate", "")


def read_resource(outgoing: Outgoing, answer: Answer, resource: str) -> Resource:
    """Read an MCP server's description of itself.

    Raises: ProviderNonsense.
    """
    identifier = answer.needed("resource")
    if not covers(identifier, resource):
        raise ProviderNonsense("the server's description is of another server")
    issuers = answer.texts("authorization_servers")
    if not issuers:
        raise ProviderNonsense("the server's description names nobody who issues its tokens")
    issuer = allowed(outgoing, issuers[0], named_by=resource, what="the issuer of the server's tokens")
    return Resource(issuer, identifier, answer.texts("scopes_supported"))


def covers(identifier: str, resource: str) -> bool:
    """Judge whether a description is of that server: of its very address, or of a folder above it on the same origin."""
    try:
        above, below = URL(identifier), URL(resource)
        same = origin_of(above) == origin_of(below) != ""
    except ValueError:
        return False
    path = above.raw_path.rstrip("/")
    return same and not above.query_string and f"{below.raw_path.rstrip('/')}/".startswith(f"{path}/")
