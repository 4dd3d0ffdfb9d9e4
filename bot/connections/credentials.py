"""Credentials: what an account's provider gave, as it is kept in the vault.

What lives here: the value, its stored form, what lists may show of it. What does not: reading and refreshing it (tokens.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from durable_core import codec

if TYPE_CHECKING:
    from bot.connections.connection import OAuthConnection
    from durable_core.model import VaultListing

KIND: Final = "credential"
"""The kind of these entries in the vault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """An account's tokens, and whose they are. Times are milliseconds.

    ``expires_at`` is None where the provider doesn't say; ``refresh_token`` where it gave none, or where it isn't known whether
    the one it gave has been used up.
    """

    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    expires_at: int | None = None
    scopes: tuple[str, ...] = ()
    subject: str = ""
    account: str = ""
    """What people call the account: a name, or an e-mail address."""
    issuer: str = ""
    obtained_at: int = 0
    signed_in_at: int = 0

    def to_json(self) -> dict[str, Any]:
        """Turn this into plain JSON, to be sealed."""
        return {
            "access_token": self.access_token,
            "refresh_token": self.refresh_token,
            "expires_at": self.expires_at,
            "scopes": list(self.scopes),
            "subject": self.subject,
            "account": self.account,
            "issuer": self.issuer,
            "obtained_at": self.obtained_at,
            "signed_in_at": self.signed_in_at,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Credential:
        """Read what `to_json` wrote, by this version or an older one; what a newer one added is left out."""
        return cls(
            access_token=str(stored["access_token"]),
            refresh_token=stored.get("refresh_token"),
            expires_at=stored.get("expires_at"),
            scopes=tuple(stored.get("scopes", ())),
            subject=str(stored.get("subject", "")),
            account=str(stored.get("account", "")),
            issuer=str(stored.get("issuer", "")),
            obtained_at=int(stored.get("obtained_at", 0)),
            signed_in_at=int(stored.get("signed_in_at", 0)),
        )

    def about(self, connection: OAuthConnection) -> dict[str, Any]:
        """What lists show without opening anything: nothing secret."""
        return {
            "connection": connection.name,
            "title": connection.title,
            "account": self.account,
            "scopes": list(self.scopes),
            "issuer": self.issuer,
            "expires_at": self.expires_at,
            "refreshes": self.refresh_token is not None,
            "signed_in_at": self.signed_in_at,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A kept credential as lists show it. ``owner`` is a principal's id, or "app:"."""

    name: str
    owner: str
    version: int
    connection: str
    title: str
    account: str
    scopes: tuple[str, ...]
    signed_in_at: int
    changed_at: int


def entry_name(connection: OAuthConnection, owner: str) -> str:
    """Name the vault's entry of an owner's credential; another provider, client or resource has another.

    Raises: VariableMissing.
    """
    return f"{KIND}/{connection.name}/{connection.identity}/{quote(owner, safe='@:.+-_')}"


def value_of(credential: Credential) -> bytes:
    """Write a credential as the vault is given it, to be sealed there."""
    return codec.encode(credential.to_json())


def about_of(credential: Credential, connection: OAuthConnection) -> bytes:
    """Write what lists may show of it."""
    return codec.encode(credential.about(connection))


def opened(value: bytes) -> Credential:
    """Read what the vault has opened."""
    stored: Any = codec.decode(value)
    return Credential.from_json(stored)


def listed(line: VaultListing) -> Listed:
    """Read what a list shows of an entry."""
    about: Any = codec.decode(line.about) if line.about else {}
    return Listed(
        name=line.name,
        owner=line.owner,
        version=line.version,
        connection=str(about.get("connection", "")),
        title=str(about.get("title", "")),
        account=str(about.get("account", "")),
        scopes=tuple(str(scope) for scope in about.get("scopes", ())),
        signed_in_at=int(about.get("signed_in_at", 0)),
        changed_at=line.changed_at,
    )
