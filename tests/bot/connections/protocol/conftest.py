"""A guarded client that may ask this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bot.outgoing import Outgoing
from tests.bot.connections.protocol.asking import PUBLIC
from tests.oidc import OidcPeer


@pytest.fixture
async def outgoing(oidc: OidcPeer) -> AsyncIterator[Outgoing]:
    """Ask the real provider."""
    client = Outgoing(trusted=[oidc.issuer, PUBLIC])
    yield client
    await client.close()
