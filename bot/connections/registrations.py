"""Where the clients that providers made for the app are kept: in the vault, for all replicas.

What lives here: the port that bot/connections/protocol asks for. What does not: registering.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bot.connections.connection import APP
from bot.connections.protocol.ports import Registration
from bot.connections.protocol.values import ClientAuth
from durable_core import codec
from durable_core.model import VaultWrite

if TYPE_CHECKING:
    from durable_core.store import Store

KIND: Final = "registration"


@dataclass(frozen=True, slots=True)
class VaultRegistrations:
    """Registrations in a store, one for an issuer and a redirect address."""

    store: Store

    async def find(self, issuer: str, redirect_uri: str) -> Registration | None:
        """Return the registration that stands."""
        entry = await self.store.vault(_name(issuer, redirect_uri))
        return None if entry is None else _read(codec.decode(entry.value))

    async def keep(self, registration: Registration) -> Registration:
        """Keep it where none stands; returns the one that stands then, which may be another replica's."""
        write = VaultWrite(
            name=_name(registration.issuer, registration.redirect_uri),
            kind=KIND,
            owner=APP,
            value=codec.encode(_written(registration)),
            about=codec.encode({"issuer": registration.issuer}),
            expect=0,
        )
        if await self.store.vault_write([write]) is not None:
            return registration
        return await self.find(registration.issuer, registration.redirect_uri) or registration

    async def drop(self, registration: Registration) -> None:
        """Forget it where it still stands: the provider knows it no more."""
        name = _name(registration.issuer, registration.redirect_uri)
        entry = await self.store.vault(name)
        if entry is not None and _read(codec.decode(entry.value)) == registration:
            await self.store.vault_write([VaultWrite(name=name, kind=KIND, value=None, expect=entry.version)])


def _name(issuer: str, redirect_uri: str) -> str:
    return f"{KIND}/{hashlib.sha256(f'{issuer} {redirect_uri}'.encode()).hexdigest()[:32]}"


def _written(registration: Registration) -> dict[str, Any]:
    return {
        "issuer": registration.issuer,
        "client_id": registration.client_id,
        "secret": registration.secret,
        "redirect_uri": registration.redirect_uri,
        "auth": registration.auth.value,
        "expires_at": registration.expires_at,
    }


def _read(stored: Any) -> Registration:
    return Registration(
        str(stored["issuer"]),
        str(stored["client_id"]),
        stored["secret"],
        redirect_uri=str(stored["redirect_uri"]),
        auth=ClientAuth(stored["auth"]),
        expires_at=stored["expires_at"],
    )
