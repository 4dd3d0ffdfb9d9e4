"""One provider, asked for one connection.

What lives here: the calls, each whole: the request, the check of the answer, the value. What does not: their parts (their own
modules), and whether a state, a code or a token was used before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from bot.connections.protocol.ports import ConnectionLike, Registrations
from bot.connections.protocol.values import Account, Client, DeviceStart, Endpoints, Pending, TokenGrant
from bot.outgoing import Outgoing


class Provider:
    """Ask one provider for one connection; keeps what was discovered for an hour, and nothing else.

    Each call may raise `ProviderDown`, `ProviderRefused`, `ProviderNonsense` or `NoClient`, and nothing else. `public_url` is
    the app's own address; the redirect address of a connection is `<public_url>/connect/callback/<name>`, its own, so that one
    provider's answer can't be taken for another's.
    """

    def __init__(
        self,
        connection: ConnectionLike,
        outgoing: Outgoing,
        *,
        public_url: str,
        registrations: Registrations | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.connection = connection
        self._outgoing = outgoing
        self._public_url = public_url.rstrip("/")
        self._registrations = registrations
        self._now = now

    @property
    def redirect_uri(self) -> str:
        """Where the provider sends people back to for this connection."""
        return f"{self._public_url}/connect/callback/{self.connection.name}"

    async def endpoints(self) -> Endpoints:
        """Return where to ask for what: as written, else discovered."""
        raise NotImplementedError

    async def client(self) -> Client:
        """Return who the app is there: as written, else by its metadata document, else registered once and kept."""
        raise NotImplementedError

    async def authorize_url(
        self, *, state: str, verifier: str, redirect_uri: str, scopes: Sequence[str], nonce: str | None = None
    ) -> str:
        """Return where to send the person: code flow with PKCE S256; `nonce` goes along where `openid` is asked for."""
        raise NotImplementedError

    async def check_callback(self, params: Mapping[str, str]) -> str:
        """Return the code of a callback whose state the caller has consumed: `iss` is checked first, then an error is raised."""
        raise NotImplementedError

    async def exchange(self, code: str, *, verifier: str, redirect_uri: str, nonce: str | None = None) -> TokenGrant:
        """Redeem a code, once; a failure with `sent` means that it may be used up."""
        raise NotImplementedError

    async def refresh(self, refresh_token: str, *, scopes: Sequence[str] = ()) -> TokenGrant:
        """Renew a grant. `refresh_token` of the answer is None where the old one goes on."""
        raise NotImplementedError

    async def revoke(self, token: str, hint: str = "refresh_token") -> bool:
        """End a token at the provider (RFC 7009); False where it offers no such thing. A token it doesn't know is ended."""
        raise NotImplementedError

    async def account(self, grant: TokenGrant) -> Account | None:
        """Return whose grant it is; None where the provider says it nowhere."""
        raise NotImplementedError

    async def start_device(self, scopes: Sequence[str]) -> DeviceStart:
        """Begin a device flow (RFC 8628)."""
        raise NotImplementedError

    async def poll_device(self, device_code: str) -> TokenGrant | Pending:
        """Ask once whether the person has finished; no sooner than the interval says."""
        raise NotImplementedError

    async def client_credentials(self, scopes: Sequence[str]) -> TokenGrant:
        """Get a token of the app itself."""
        raise NotImplementedError
