"""Renewals at a provider that nobody here wrote: refresh tokens rotate there, and one that is used twice ends them all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from bot.connections.connection import OAuthConnection
from bot.connections.connections import Connections, NeedsSignIn, Ready
from bot.outgoing import Outgoing
from durable_core.clock import ManualClock
from durable_core.store import Store
from tests.bot.connections.keeping import ALICE, HOUR, StoreOpener, need, nothing_to_wait_for
from tests.bot.connections.protocol.asking import PUBLIC, SignIn
from tests.bot.connections.protocol.asking import connection as made_for
from tests.oidc import OidcPeer


@pytest.fixture
async def outgoing(oidc: OidcPeer) -> AsyncIterator[Outgoing]:
    one = Outgoing(trusted=[oidc.issuer, PUBLIC])
    yield one
    await one.close()


@pytest.fixture
def tracker(oidc: OidcPeer) -> OAuthConnection:
    return made_for(oidc.issuer, scopes=("openid", "email", "offline_access"), extra={"prompt": "consent"})


def process(store: Store, tracker: OAuthConnection, outgoing: Outgoing) -> Connections:
    return Connections(
        {tracker.name: tracker}, store=store, outgoing=lambda: outgoing, public_url=PUBLIC, sleep=nothing_to_wait_for
    )


async def sign_in(one: Connections, tracker: OAuthConnection, oidc: OidcPeer) -> None:
    attempt = SignIn(one.provider(tracker))
    grant = await attempt.exchange(await attempt.come_back(oidc))
    assert grant.refresh_token is not None
    await one.keep(tracker, ALICE.id, grant, await one.provider(tracker).account(grant))


async def test_two_replicas_renew_once_and_again_after_that(
    one_more: StoreOpener, oidc: OidcPeer, tracker: OAuthConnection, outgoing: Outgoing, clock: ManualClock
) -> None:
    one, other = process(await one_more(), tracker, outgoing), process(await one_more(), tracker, outgoing)
    await sign_in(one, tracker, oidc)
    first = await one.token(need(tracker), ALICE)
    for turn in (1, 2, 3):
        clock.advance(HOUR)
        got = await asyncio.gather(*(each.token(need(tracker), ALICE) for each in (one, other) for _ in range(10)))
        assert len(set(got)) == 1
        assert first not in got
        assert [asked["outcome"] for asked in oidc.asked("refresh_token")] == ["granted"] * turn


async def test_an_answer_that_is_lost_after_the_token_rotated_asks_the_person_once(
    store: Store, oidc: OidcPeer, tracker: OAuthConnection, outgoing: Outgoing, clock: ManualClock
) -> None:
    one = process(store, tracker, outgoing)
    await sign_in(one, tracker, oidc)
    clock.advance(HOUR)
    oidc.plan("/token", drop="after")
    found = await one.check([need(tracker)], ALICE)
    assert isinstance(found, NeedsSignIn)
    assert found.reason == "refused"
    assert len(oidc.asked("refresh_token")) == 2
    await sign_in(one, tracker, oidc)
    assert await one.check([need(tracker)], ALICE) == Ready()
    clock.advance(timedelta(minutes=1))
    await one.token(need(tracker), ALICE)
    assert len(oidc.asked("refresh_token")) == 2


async def test_a_request_that_is_lost_before_it_arrived_costs_nothing(
    store: Store, oidc: OidcPeer, tracker: OAuthConnection, outgoing: Outgoing, clock: ManualClock
) -> None:
    one = process(store, tracker, outgoing)
    await sign_in(one, tracker, oidc)
    before = await one.token(need(tracker), ALICE)
    clock.advance(HOUR)
    oidc.plan("/token", drop="before")
    assert await one.token(need(tracker), ALICE) != before


async def test_what_somebody_took_away_at_the_provider_is_asked_for_anew(
    store: Store, oidc: OidcPeer, tracker: OAuthConnection, outgoing: Outgoing, clock: ManualClock
) -> None:
    one = process(store, tracker, outgoing)
    await sign_in(one, tracker, oidc)
    oidc.revoke("alice")
    clock.advance(HOUR)
    found = await one.check([need(tracker)], ALICE)
    assert isinstance(found, NeedsSignIn)
    assert found.reason == "refused"
    assert [asked["outcome"] for asked in oidc.asked("refresh_token")] != ["granted"]


async def test_a_disconnect_ends_the_refresh_token_there(
    store: Store, oidc: OidcPeer, tracker: OAuthConnection, outgoing: Outgoing
) -> None:
    one = process(store, tracker, outgoing)
    await sign_in(one, tracker, oidc)
    kept = await one.credential(tracker, ALICE.id)
    assert kept is not None
    assert kept.refresh_token is not None
    assert (await one.disconnect(tracker, ALICE.id)).revoked
    from bot.connections.protocol import ProviderRefused

    with pytest.raises(ProviderRefused, match="invalid_grant"):
        await one.provider(tracker).refresh(kept.refresh_token)
