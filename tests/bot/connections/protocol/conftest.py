"""Guarded clients that may ask this machine, and the provider that means no good."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bot.outgoing import Outgoing
from tests.bot.connections.protocol.asking import PUBLIC
from tests.bot.connections.protocol.hostile import Hostile, listening
from tests.oidc import OidcPeer


@pytest.fixture
async def outgoing(oidc: OidcPeer) -> AsyncIterator[Outgoing]:
    """Ask the real provider."""
    client = Outgoing(trusted=[oidc.issuer, PUBLIC])
    yield client
    await client.close()


@pytest.fixture
async def hostile() -> AsyncIterator[Hostile]:
    async with listening() as found:
        yield found


@pytest.fixture
async def reaching(hostile: Hostile) -> AsyncIterator[Outgoing]:
    """Ask the hostile provider."""
    client = Outgoing(trusted=[hostile.origin, PUBLIC])
    yield client
    await client.close()
