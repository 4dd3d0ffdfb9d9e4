"""Who the app is at a provider: as the author wrote, else by its metadata document, else by a registration.

What lives here: choosing, and registering once. What does not: the document and the request (registering.py), the vault.
"""

from __future__ import annotations

from collections.abc import Callable

from bot.connections.connection import OAuthConnection
from bot.connections.protocol.errors import NoClient
from bot.connections.protocol.ports import Registration, Registrations
from bot.connections.protocol.registering import DOCUMENT, register
from bot.connections.protocol.values import Client, ClientAuth, Endpoints
from bot.outgoing import Outgoing

_SOON = 60


class Clients:
    """The app's client at the provider of one connection."""

    def __init__(
        self,
        connection: OAuthConnection,
        outgoing: Outgoing,
        *,
        public_url: str,
        registrations: Registrations | None,
        now: Callable[[], float],
    ) -> None:
        self._connection = connection
        self._outgoing = outgoing
        self._public_url = public_url
        self._registrations = registrations
        self._now = now

    async def client(self, endpoints: Endpoints) -> Client:
        """Return the client, registered if there is no other way.

        Raises: NoClient, ProviderDown, ProviderRefused, ProviderNonsense.
        """
        static = self._connection.static_client
        if static is not None:
            return Client(static.client_id, static.client_secret, auth=self._auth(endpoints, static.client_secret))
        if endpoints.takes_documents and self._public_url.startswith("https://"):  # the provider comes and reads it
            return Client(self._public_url + DOCUMENT)
        kept = await self._registered(endpoints)
        return Client(kept.client_id, kept.secret, auth=kept.auth)

    async def refused(self, client: Client, endpoints: Endpoints) -> None:
        """Forget a registration that the provider does not know any more: the next sign-in makes another."""
        if self._connection.static_client is not None or self._registrations is None or endpoints.issuer is None:
            return
        standing = await self._registrations.find(endpoints.issuer, self._redirect_uri)
        if standing is not None and standing.client_id == client.client_id:
            await self._registrations.drop(standing)

    async def _registered(self, endpoints: Endpoints) -> Registration:
        if self._registrations is None or endpoints.issuer is None:
            raise NoClient(self._connection.name)
        standing = await self._registrations.find(endpoints.issuer, self._redirect_uri)
        if standing is not None and (standing.expires_at is None or standing.expires_at > self._now() + _SOON):
            return standing
        if endpoints.registration is None:
            raise NoClient(self._connection.name)
        if standing is not None:
            await self._registrations.drop(standing)
        device = self._connection.grant == "device"
        return await self._registrations.keep(await register(self._outgoing, endpoints, self._redirect_uri, device=device))

    @property
    def _redirect_uri(self) -> str:
        return self._connection.redirect_uri(self._public_url)

    def _auth(self, endpoints: Endpoints, secret: str | None) -> ClientAuth:
        if secret is None:
            return ClientAuth.NONE
        if self._connection.client_auth is not None:
            return ClientAuth(self._connection.client_auth)
        offered = endpoints.auth_methods
        return ClientAuth.POST if offered and ClientAuth.BASIC not in offered and ClientAuth.POST in offered else ClientAuth.BASIC
