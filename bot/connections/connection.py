"""A connection: where an account lives, how somebody signs in to it, and whom its token may be shown to.

What lives here: the declaration that an author writes, and its checks. What does not: ready-made ones (bot/oauth.py), tokens.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic_core import to_json

from bot.connections.accounts import AccountSource
from bot.connections.hosts import Bound, host_problem
from bot.environment import SecretText, hidden, revealed

if TYPE_CHECKING:
    from bot.approvals import Approval
    from bot.policies import When

Owner: TypeAlias = Literal["user", "app"]
GrantType: TypeAlias = Literal["code", "device", "client_credentials"]
ClientAuth: TypeAlias = Literal["client_secret_basic", "client_secret_post", "none"]

APP: Final = "app:"
"""The owner of the app's own accounts, where people's are owned by their principal's id."""
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_URLS: Final = ("issuer", "authorize_url", "token_url", "userinfo_url", "revoke_url", "device_url", "jwks_url")
_SIGN_IN: Final = frozenset({"openid", "profile", "email", "offline_access", "offline"})
_OURS: Final = frozenset(
    {
        "response_type",
        "client_id",
        "redirect_uri",
        "state",
        "code_challenge",
        "code_challenge_method",
        "nonce",
        "scope",
        "resource",
    }
)


@dataclass(frozen=True, slots=True)
class OAuthConnection:
    """An account elsewhere that tools act with, by OAuth 2.

    Args:
        name: What records, the redirect URI and the command line call it. Keep it when the variable is renamed.
        title: What people read: "GitHub". The name, if empty.
        client_id: Of the app, as the provider gave it. Empty where the app registers itself, as with MCP servers.
        client_secret: `env("…")`; None of a public client.
        issuer: Where the provider describes itself (RFC 8414, OpenID Connect); the addresses below are then found there.
        authorize_url, token_url, userinfo_url, revoke_url, device_url, jwks_url: The addresses, where there is no issuer or it
            says too little. One that begins with "/" is on the app's own public URL.
        scopes: What every sign-in asks for; a tool asks for more by `connection.scoped("repo")`.
        owner: "user": whoever asks signs in, and the call runs as them. "app": one account for all, connected by an operator.
        grant: "code" in the browser, "device" with a code typed elsewhere, "client_credentials" without any person.
        hosts: Whom `ctx.http` may send the token to: host names, or https addresses whose path every request begins with. A
            relative path is one of the first.
        headers: Sent with every request of `ctx.http`, beside the token: a version of the API, say.
        extra: Parameters of the authorize address beside the protocol's own.
        scope_separator: What scopes are joined by, where a provider has its own way.
        client_auth: How the app proves itself at the token address. None: as the provider advertises, else by Basic.
        account: How to read whose account it is; unset, by OpenID Connect.
        verifies_email: Whether the provider's word that an e-mail address is verified is to be believed.
        expose_token: `ctx.token(…)` gives the token itself to a tool. It is better not to.
        approval: The approval of tools that use it and declare none.
        expires: How long a request to sign in waits for the person.
        resource: What the token is for (RFC 8707): the address of an MCP server.
        implies: Scopes that hold others, where a provider leaves those out of its answer: {"user": ["read:user"]}.
        internal: Its addresses and hosts are in your own network, and may be private ones.
    """

    name: str
    _: KW_ONLY
    title: str = ""
    client_id: str | SecretText = ""
    client_secret: SecretText | str | None = field(default=None, repr=False)
    issuer: str | None = None
    authorize_url: str | None = None
    token_url: str | None = None
    userinfo_url: str | None = None
    revoke_url: str | None = None
    device_url: str | None = None
    jwks_url: str | None = None
    scopes: Sequence[str] = ()
    owner: Owner = "user"
    grant: GrantType = "code"
    hosts: Sequence[str] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)
    scope_separator: str = " "
    client_auth: ClientAuth | None = None
    account: AccountSource | None = None
    verifies_email: bool = False
    expose_token: bool = False
    approval: Approval | When | None = None
    expires: timedelta = timedelta(days=1)
    resource: str | None = None
    implies: Mapping[str, Sequence[str]] = field(default_factory=dict)
    internal: bool = False

    def __post_init__(self) -> None:
        """Keep what was listed from changing, and a secret given in clear from being shown."""
        for name in ("scopes", "hosts"):
            value: Any = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        object.__setattr__(self, "title", self.title or self.name)
        object.__setattr__(self, "extra", dict(self.extra))
        object.__setattr__(self, "headers", {name.lower(): value for name, value in self.headers.items()})
        object.__setattr__(self, "implies", {scope: tuple(held) for scope, held in self.implies.items()})
        object.__setattr__(self, "client_secret", hidden(self.client_secret))

    def __hash__(self) -> int:
        return hash(self.name)

    def scoped(self, *scopes: str) -> Need:
        """Ask for more than the connection does by itself; who has signed in with less is asked once more."""
        return Need(self, tuple(dict.fromkeys((*self.scopes, *scopes))))

    @property
    def static_client(self) -> StaticClient | None:
        """The client that the provider gave the author; None where the app registers itself. Raises: VariableMissing."""
        client_id = revealed(self.client_id)
        secret = hidden(self.client_secret)
        return StaticClient(client_id, secret.reveal() if secret is not None else None) if client_id else None

    @property
    def identity(self) -> str:
        """Digest what credentials of it are for: one that is given another provider, client or resource forgets what it had."""
        parts = [self.issuer, self.token_url, self.resource, self.owner, self.grant, revealed(self.client_id)]
        return hashlib.sha256(to_json(parts)).hexdigest()[:16]

    @property
    def definition(self) -> dict[str, Any]:
        """All that it says, for comparing two of one name; no secret is in it."""
        return {
            name: getattr(self, name).name if isinstance(getattr(self, name), SecretText) else getattr(self, name)
            for name in self.__dataclass_fields__
            if name != "_"
        }

    def lacking(self, wanted: Sequence[str], granted: Sequence[str]) -> tuple[str, ...]:
        """Return which of the scopes that are wanted were not granted, as far as the provider's answer tells.

        Those that only say who somebody is, or for how long, are not looked for: providers answer with other words for them.
        """
        had = {_plain(scope) for name in granted for scope in (name, *self.implies.get(name, ()))}
        return tuple(scope for scope in wanted if _plain(scope) not in had | _SIGN_IN)

    @property
    def trusted(self) -> tuple[str, ...]:
        """Origins that the author names and that may be on this machine, or in the own network where it says so."""
        named = [getattr(self, name) for name in (*_URLS, "resource")]
        urls = [url for url in (*named, *self.hosts) if url and not url.startswith("/")]
        bounds = [Bound.of(url, None) for url in urls]
        return tuple(dict.fromkeys(bound.origin for bound in bounds if self.internal or bound.scheme == "http"))

    def bounds(self, public_url: str | None) -> tuple[Bound, ...]:
        """Whom its token may be sent to."""
        return tuple(Bound.of(host, public_url) for host in self.hosts)

    def url(self, name: str, public_url: str | None) -> str | None:
        """Return one of its addresses by its parameter's name, in full: "/…" is on the app's own."""
        return absolute(getattr(self, name), public_url)

    def redirect_uri(self, public_url: str) -> str:
        """Where the provider sends a browser back to: an address of this connection alone (mix-up, RFC 9700 §4.4)."""
        return f"{public_url.rstrip('/')}/connect/callback/{self.name}"

    @property
    def needs_browser(self) -> bool:
        """Whether somebody comes back from the provider, so that this app must have an address of its own."""
        return self.grant == "code"

    @property
    def on_own_address(self) -> bool:
        """Whether a part of it is served by this app itself."""
        return any((getattr(self, name) or "").startswith("/") for name in _URLS) or any(
            host.startswith("/") for host in self.hosts
        )

    def problems(self) -> tuple[str, ...]:
        """List everything that keeps it from being used."""
        found = [*self._names(), *self._addresses(), *self._client(), *self._rest()]
        return tuple(f"connection {self.name!r}: {problem}" for problem in found)

    def _names(self) -> list[str]:
        found = []
        if not _NAME.fullmatch(self.name):
            found.append("a name is 1 to 64 lower-case letters, digits, '_' or '-', a letter first")
        found += [f"scopes= names {scope!r}, which is no scope" for scope in self.scopes if not scope or scope != scope.strip()]
        found += [f"extra= may not give {name!r}: the protocol does" for name in self.extra if name in _OURS]
        if self.expires <= timedelta(0):
            found.append("expires= must be in the future")
        return found

    def _addresses(self) -> list[str]:
        found = [
            f"{name}= must be an https address, or a path that begins with / on the app's own"
            for name in (*_URLS, "resource")
            if (value := getattr(self, name)) is not None and not _is_address(value)
        ]
        if self.issuer is None and self.resource is None:
            wanted = {"code": ("authorize_url", "token_url"), "device": ("device_url", "token_url")}.get(
                self.grant, ("token_url",)
            )
            missing = [f"{name}=" for name in wanted if getattr(self, name) is None]
            if missing:
                found.append(f"give issuer=, or {' and '.join(missing)}")
        return found + [problem for host in self.hosts if (problem := host_problem(host)) is not None]

    def _client(self) -> list[str]:
        values = {"client_id": self.client_id, "client_secret": self.client_secret}
        found = [
            f"{name}: {problem}"
            for name, value in values.items()
            if isinstance(value, SecretText) and (problem := value.problem()) is not None
        ]
        registers = self.resource is not None or self.issuer is not None
        if self.client_id == "" and not registers:
            found.append("client_id= is missing")
        if self.client_id == "" and self.client_secret is not None:
            found.append("client_secret= is given without client_id=")
        if (self.client_auth or "none") != "none" and self.client_secret is None:
            found.append(f"client_auth={self.client_auth!r} needs client_secret=")
        return found

    def _rest(self) -> list[str]:
        found = []
        if self.grant == "client_credentials":
            if self.owner != "app":
                found.append("grant='client_credentials' is the app's own: owner='app'")
            if self.client_secret is None:
                found.append("grant='client_credentials' needs client_secret=")
        if self.approval is not None:
            found += _approval_problems(self.approval)
        return found


@dataclass(frozen=True, slots=True)
class Need:
    """A connection, with what a tool must be allowed to do with it."""

    connection: OAuthConnection
    scopes: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: OAuthConnection | Need) -> Need:
        """Make one of what an author gives in ``connections=``."""
        return given if isinstance(given, Need) else cls(given, tuple(given.scopes))

    @property
    def name(self) -> str:
        """The connection's name."""
        return self.connection.name


@dataclass(frozen=True, slots=True)
class StaticClient:
    """An app as a provider knows it."""

    client_id: str
    client_secret: str | None = field(default=None, repr=False)


def needs_of(given: Sequence[OAuthConnection | Need]) -> tuple[Need, ...]:
    """Turn what an author lists into needs, one a connection: scopes of the same one are put together."""
    found: dict[str, Need] = {}
    for need in map(Need.of, given):
        before = found.get(need.name)
        scopes = (*(before.scopes if before is not None else ()), *need.scopes)
        found[need.name] = Need(need.connection, tuple(dict.fromkeys(scopes)))
    return tuple(found.values())


def _plain(scope: str) -> str:
    """Return a scope as two are compared: Microsoft answers without the address that it takes."""
    return scope.lower().removeprefix("https://graph.microsoft.com/")


def absolute(url: str | None, public_url: str | None) -> str | None:
    """Put an address that begins with "/" on the app's own public URL."""
    if url is None or not url.startswith("/"):
        return url
    return f"{(public_url or '').rstrip('/')}{url}"


def _is_address(url: str) -> bool:
    if url.startswith("/"):
        return not url.startswith("//")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    # plain http only on this machine, for tests and providers under development; `Outgoing` decides whether it is allowed
    local = parts.scheme == "http" and parts.hostname in {"127.0.0.1", "localhost", "::1"}
    return (parts.scheme == "https" or local) and bool(parts.hostname) and not parts.username and not parts.fragment


def _approval_problems(approval: Any) -> list[str]:
    """What its approval can't mean whatever the tool; names of arguments are checked with each tool."""
    from bot.approvals import Approval  # noqa: PLC0415 - the declaration is imported by what approvals import

    given = approval if isinstance(approval, Approval) else Approval(when=approval)
    return [f"approval: {problem}" for problem in given.problems(()) if "no parameter" not in problem]
