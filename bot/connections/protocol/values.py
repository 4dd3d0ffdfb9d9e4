"""What is said to a provider and what it says, as values.

What lives here: frozen values; those with a secret don't show it. What does not: reading them from answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Any


class ClientAuth(StrEnum):
    """How the app proves itself at the token endpoint (RFC 8414's names)."""

    NONE = "none"
    BASIC = "client_secret_basic"
    POST = "client_secret_post"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where a provider is asked for what; None where it offers no such thing or nobody said."""

    issuer: str | None
    _: KW_ONLY
    authorize: str | None = None
    token: str | None = None
    userinfo: str | None = None
    revoke: str | None = None
    device: str | None = None
    jwks: str | None = None
    registration: str | None = None
    names_issuer: bool = False
    """Its callbacks always carry `iss` (RFC 9207): one without is not from it."""
    auth_methods: tuple[str, ...] = ()
    """Ways of client authentication at the token endpoint, as advertised; empty: nothing was said."""
    signing: tuple[str, ...] = ()
    """Algorithms of its id_tokens, as advertised; empty: nothing was said."""
    takes_documents: bool = False
    """It reads Client ID Metadata Documents."""
    resource: str | None = None
    """What tokens are for (RFC 8707), in the MCP server's own words."""
    scopes: tuple[str, ...] = ()
    """What an MCP server says it needs, where it says so."""


@dataclass(frozen=True, slots=True)
class Client:
    """Who the app is at a provider."""

    client_id: str
    secret: str | None = field(default=None, repr=False)
    _: KW_ONLY
    auth: ClientAuth = ClientAuth.NONE


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """What a token endpoint gave.

    `expires_in`: seconds, between 1 and ten years; None where nothing was said. `scopes` is None where nothing was said: what
    was asked for (RFC 6749 5.1). `refresh_token` is None where none came: after a refresh the old one goes on. `id_claims` are
    those of an id_token whose signature, issuer, audience, time and nonce were right. `extra` is the rest of the answer.
    """

    access_token: str = field(repr=False)
    _: KW_ONLY
    refresh_token: str | None = field(default=None, repr=False)
    expires_in: int | None = None
    scopes: tuple[str, ...] | None = None
    id_claims: Mapping[str, Any] | None = field(default=None, repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Account:
    """Whose account it is, in the provider's words. `subject` never changes and is never empty."""

    subject: str
    name: str | None = None
    email: str | None = field(default=None, repr=False)
    _: KW_ONLY
    email_verified: bool = False


@dataclass(frozen=True, slots=True)
class DeviceStart:
    """A device flow that began (RFC 8628): the person types `user_code` at `uri`, in private. Times are seconds."""

    device_code: str = field(repr=False)
    user_code: str = field(repr=False)
    uri: str
    _: KW_ONLY
    uri_complete: str | None = field(default=None, repr=False)
    interval: int = 5
    expires_in: int


@dataclass(frozen=True, slots=True)
class Pending:
    """The person has not finished yet. `slow_down`: add five seconds to the interval, for good."""

    slow_down: bool = False
