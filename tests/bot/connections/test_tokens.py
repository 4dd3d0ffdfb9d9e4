"""Tokens: kept, renewed once however many need one, and never renewed blindly."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.connections.connection import APP
from bot.connections.connections import Barred, NeedsSignIn, Ready
from bot.connections.credentials import Credential, entry_name
from bot.connections.errors import AccountUnreachable, NotConnected, PrincipalRequired, Unauthorized
from bot.connections.protocol import ProviderDown, ProviderNonsense, ProviderRefused
from bot.connections.tokens import LEASE_MS, PATIENCE_MS, renew_at
from durable_core.clock import ManualClock
from durable_core.store import Store
from tests.bot.connections.keeping import (
    ACCOUNT,
    ALICE,
    BOB,
    HOUR,
    NOBODY,
    START,
    StoreOpener,
    ToldProvider,
    grant,
    lost,
    need,
    replica,
    tracker,
)

REFUSED = ProviderRefused("invalid_grant")


async def test_what_a_sign_in_brought_is_lent_to_whoever_signed_in_and_to_nobody_else(
    store: Store, provider: ToldProvider
) -> None:
    alices = replica(store, provider)
    assert await alices.check([need()], ALICE) == NeedsSignIn(need(), "missing", ("issues",))
    assert await alices.keep(tracker(), ALICE.id, grant(1), ACCOUNT) is not None
    assert await alices.check([need()], ALICE) == Ready()
    assert await alices.token(need(), ALICE) == "c4nary-access-1"
    assert await alices.check([need()], BOB) == NeedsSignIn(need(), "missing", ("issues",))
    with pytest.raises(Unauthorized):
        await alices.token(need(), BOB)
    assert provider.asked == []


async def test_twenty_who_need_a_token_at_its_end_renew_it_once(store: Store, provider: ToldProvider, clock: ManualClock) -> None:
    one = replica(store, provider)
    await one.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    clock.advance(HOUR)
    got = await asyncio.gather(*(one.token(need(), ALICE) for _ in range(20)))
    assert set(got) == {"c4nary-access-2"}
    assert provider.asked == ["c4nary-refresh-1"]


async def test_two_replicas_make_one_request(one_more: StoreOpener, provider: ToldProvider, clock: ManualClock) -> None:
    waits = asyncio.Event()

    async def sleep(_: float) -> None:
        waits.set()
        await asyncio.sleep(0.01)

    one, other = replica(await one_more(), provider, sleep=sleep), replica(await one_more(), provider, sleep=sleep)
    await one.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    clock.advance(HOUR)
    provider.gate.clear()
    first = asyncio.gather(*(one.token(need(), ALICE) for _ in range(5)))
    await provider.busy.wait()
    second = asyncio.gather(*(other.token(need(), ALICE) for _ in range(5)))
    await waits.wait()  # the other replica has seen that somebody is at it
    provider.gate.set()
    assert set(await first) | set(await second) == {"c4nary-access-2"}
    assert provider.asked == ["c4nary-refresh-1"]


async def test_two_replicas_that_are_refused_at_once_make_one_request(one_more: StoreOpener, provider: ToldProvider) -> None:
    one, other = replica(await one_more(), provider), replica(await one_more(), provider)
    await one.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    version = (await one.access(need(), ALICE)).version
    got = await asyncio.gather(one.access(need(), ALICE, version), other.access(need(), ALICE, version))
    assert {access.token for access in got} == {"c4nary-access-2"}
    assert provider.asked == ["c4nary-refresh-1"]


async def test_a_refresh_token_is_kept_where_none_comes_back(store: Store, provider: ToldProvider, clock: ManualClock) -> None:
    one = replica(store, provider)
    await one.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    provider.answers = [grant(2, refresh_token=None)]
    clock.advance(HOUR)
    assert await one.token(need(), ALICE) == "c4nary-access-2"
    clock.advance(HOUR)
    await one.token(need(), ALICE)
    assert provider.asked == ["c4nary-refresh-1", "c4nary-refresh-1"]


async def test_an_answer_that_was_lost_after_the_token_rotated_has_the_person_asked_once(
    store: Store, provider: ToldProvider, clock: ManualClock
) -> None:
    one = replica(store, provider)
    await one.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    clock.advance(HOUR)
    provider.answers = [lost(), REFUSED]
    assert await one.check([need()], ALICE) == NeedsSignIn(need(), "refused", ("issues",))
    assert await one.check([need()], ALICE) == NeedsSignIn(need(), "missing", ("issues",))
    assert provider.asked == ["c4nary-refresh-1", "c4nary-refresh-1"]
    await one.keep(tracker(), ALICE.id, grant(5), ACCOUNT)
    assert await one.check([need()], ALICE) == Ready()
    assert await one.token(need(), ALICE) == "c4nary-access-5"
    assert len(provider.asked) == 2


@pytest.mark.parametrize(
    "failures",
    [
        [ProviderDown("the provider takes no connection", sent=False)],
        [lost(), lost()],
        [ProviderNonsense("the answer is no JSON"), ProviderNonsense("the answer is no JSON")],
        [ProviderRefused("temporarily_unavailable")],
        [ProviderRefused("invalid_client")],
    ],
    ids=["unreachable", "silent", "garbage", "busy", "app refused"],
)
async def test_a_provider_that_is_down_signs_nobody_out(
    store: Store, provider: ToldProvider, clock: ManualClock, failures: list[Exception]
) -> None:
    one = replica(store, provider)
    await one.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    clock.advance(HOUR)
    provider.answers = [*failures]
    with pytest.raises(AccountUnreachable) as failed:
        await one.token(need(), ALICE)
    assert failed.value.retryable is ("invalid_client" not in str(failures))
    assert len(provider.asked) == len(failures)
    assert await one.token(need(), ALICE) == "c4nary-access-2"


async def test_a_check_leaves_an_outage_to_the_body(store: Store, provider: ToldProvider, clock: ManualClock) -> None:
    one = replica(store, provider)
    await one.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    clock.advance(HOUR)
    provider.answers = [ProviderDown("it takes no connection", sent=False)]
    assert await one.check([need()], ALICE) == Ready()


async def test_whoever_was_overtaken_writes_nothing(one_more: StoreOpener, provider: ToldProvider, clock: ManualClock) -> None:
    """One renews for longer than its lease; another takes over; the first one's late answer changes nothing."""
    store = await one_more()
    slow, quick = replica(store, provider), replica(await one_more(), ToldProvider(number=7))
    await slow.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    clock.advance(HOUR)
    provider.gate.clear()
    late = asyncio.create_task(slow.token(need(), ALICE))
    await provider.busy.wait()
    clock.advance(timedelta(milliseconds=LEASE_MS + 1))
    assert await quick.token(need(), ALICE) == "c4nary-access-8"
    provider.gate.set()
    assert await late == "c4nary-access-8"
    kept = await slow.credential(tracker(), ALICE.id)
    assert kept is not None
    assert (kept.access_token, kept.refresh_token) == ("c4nary-access-8", "c4nary-refresh-8")


async def test_a_new_sign_in_overtakes_a_renewal(store: Store, provider: ToldProvider, clock: ManualClock) -> None:
    one = replica(store, provider)
    await one.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    clock.advance(HOUR)
    provider.gate.clear()
    waiting = asyncio.create_task(one.token(need(), ALICE))
    await provider.busy.wait()
    await one.keep(tracker(), ALICE.id, grant(5), ACCOUNT)
    provider.gate.set()
    assert await waiting == "c4nary-access-5"
    assert provider.revoked == []


async def test_a_token_that_comes_after_a_disconnect_is_ended_at_the_provider(
    store: Store, provider: ToldProvider, clock: ManualClock
) -> None:
    one = replica(store, provider)
    await one.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    clock.advance(HOUR)
    provider.gate.clear()
    waiting = asyncio.create_task(one.token(need(), ALICE))
    await provider.busy.wait()
    assert (await one.disconnect(tracker(), ALICE.id)).found
    provider.gate.set()
    with pytest.raises(Unauthorized):
        await waiting
    assert ("c4nary-refresh-2", "refresh_token") in provider.revoked
    assert await one.credential(tracker(), ALICE.id) is None


async def test_a_caller_that_is_cancelled_breaks_off_no_renewal(store: Store, provider: ToldProvider, clock: ManualClock) -> None:
    """The provider has given a new token by then: not to write it would sign the person out."""
    one = replica(store, provider)
    await one.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    clock.advance(HOUR)
    provider.gate.clear()
    waiting = asyncio.create_task(one.token(need(), ALICE))
    await provider.busy.wait()
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    provider.gate.set()
    await one.close()
    assert await one.token(need(), ALICE) == "c4nary-access-2"
    assert provider.asked == ["c4nary-refresh-1"]


async def test_a_token_is_renewed_ahead_of_its_end_while_it_is_still_used(
    store: Store, provider: ToldProvider, clock: ManualClock
) -> None:
    one = replica(store, provider)
    await one.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    kept = await one.credential(tracker(), ALICE.id)
    assert kept is not None
    version = (await one.access(need(), ALICE)).version
    clock.advance(timedelta(milliseconds=renew_at(kept, version) - START - 1))
    assert await one.token(need(), ALICE) == "c4nary-access-1"
    await one.close()
    assert provider.asked == []
    clock.advance(timedelta(milliseconds=1))
    provider.gate.clear()
    assert await one.token(need(), ALICE) == "c4nary-access-1"  # nobody waits for what isn't needed yet
    provider.gate.set()
    await one.close()
    assert await one.token(need(), ALICE) == "c4nary-access-2"
    assert provider.asked == ["c4nary-refresh-1"]


async def test_a_provider_that_is_down_is_not_asked_by_every_call_ahead_of_the_end(
    store: Store, provider: ToldProvider, clock: ManualClock
) -> None:
    one = replica(store, provider)
    await one.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    clock.advance(timedelta(minutes=59))
    provider.answers = [ProviderDown("it takes no connection", sent=False)]
    for _ in range(5):
        assert await one.token(need(), ALICE) == "c4nary-access-1"
        await one.close()
    assert len(provider.asked) == 1
    clock.advance(timedelta(milliseconds=PATIENCE_MS))
    assert await one.token(need(), ALICE) == "c4nary-access-1"
    await one.close()
    assert await one.token(need(), ALICE) == "c4nary-access-2"


async def test_a_refresh_token_that_is_over_leaves_the_access_token_its_time(
    store: Store, provider: ToldProvider, clock: ManualClock
) -> None:
    one = replica(store, provider)
    await one.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    clock.advance(timedelta(minutes=59))
    provider.answers = [REFUSED]
    assert await one.token(need(), ALICE) == "c4nary-access-1"
    await one.close()
    assert await one.token(need(), ALICE) == "c4nary-access-1"
    assert len(provider.asked) == 1
    clock.advance(timedelta(minutes=1))
    with pytest.raises(Unauthorized):
        await one.token(need(), ALICE)
    assert len(provider.asked) == 1


def test_moments_of_renewal_are_spread_and_the_same_for_all() -> None:
    whole = Credential(access_token="x", expires_at=START + 3_600_000, obtained_at=START)
    moments = [renew_at(replace(whole, subject=str(number)), 1) for number in range(500)]
    assert len(set(moments)) > 450
    assert all(3_000_000 <= moment - START <= 3_300_000 for moment in moments)
    assert renew_at(whole, 1) == renew_at(replace(whole), 1)
    short = replace(whole, expires_at=START + 60_000)
    assert START + 48_000 <= renew_at(short, 1) <= START + 54_000


async def test_a_token_without_an_end_is_used_until_it_is_refused(
    store: Store, provider: ToldProvider, clock: ManualClock
) -> None:
    one = replica(store, provider)
    await one.keep(tracker(), ALICE.id, grant(1, expires_in=None, refresh_token=None), ACCOUNT)
    clock.advance(timedelta(days=400))
    access = await one.access(need(), ALICE)
    assert access.token == "c4nary-access-1"
    with pytest.raises(Unauthorized):
        await one.access(need(), ALICE, access.version)
    assert await one.credential(tracker(), ALICE.id) is None
    assert provider.asked == []


async def test_a_drop_of_a_version_that_is_over_drops_nothing(store: Store, provider: ToldProvider) -> None:
    one = replica(store, provider)
    old = await one.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    new = await one.keep(tracker(), ALICE.id, grant(2), ACCOUNT)
    assert old is not None
    assert new is not None
    assert not await one.drop(tracker(), ALICE.id, old)
    assert await one.token(need(), ALICE) == "c4nary-access-2"
    assert await one.drop(tracker(), ALICE.id, new)
    assert await one.check([need()], ALICE) == NeedsSignIn(need(), "missing", ("issues",))


async def test_more_scopes_are_asked_for_together_with_those_before(store: Store, provider: ToldProvider) -> None:
    one = replica(store, provider)
    await one.keep(tracker(), ALICE.id, grant(1, scopes=("issues", "read")), ACCOUNT)
    more = tracker().scoped("admin")
    assert await one.check([more], ALICE) == NeedsSignIn(more, "scopes", ("issues", "admin", "read"))
    await one.keep(tracker(), ALICE.id, grant(2), ACCOUNT, scopes=("issues", "admin", "read"))
    assert await one.check([more], ALICE) == Ready()  # what was asked for, where the answer doesn't say (RFC 6749 5.1)


async def test_several_needs_are_asked_for_in_their_order(store: Store, provider: ToldProvider) -> None:
    one, second = replica(store, provider), need(replace(tracker(), name="other"))
    await one.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    found = await one.check([need(), second], ALICE)
    assert isinstance(found, NeedsSignIn)
    assert found.need == second


async def test_nobody_in_particular_has_no_account(store: Store, provider: ToldProvider) -> None:
    one = replica(store, provider)
    found = await one.check([need()], NOBODY)
    assert isinstance(found, Barred)
    assert found.code == "principal_required"
    with pytest.raises(PrincipalRequired):
        await one.token(need(), NOBODY)


async def test_the_apps_own_account_serves_all_and_is_connected_by_an_operator(store: Store, provider: ToldProvider) -> None:
    apps = tracker(owner="app")
    one = replica(store, provider, apps)
    found = await one.check([need(apps)], ALICE)
    assert isinstance(found, Barred)
    assert (found.code, "moorings connections connect tracker" in found.reason) == ("app_not_connected", True)
    with pytest.raises(NotConnected):
        await one.token(need(apps), NOBODY)
    await one.keep(apps, APP, grant(1), ACCOUNT)
    assert [await one.token(need(apps), who) for who in (ALICE, BOB, NOBODY)] == ["c4nary-access-1"] * 3


async def test_a_token_of_the_app_itself_is_fetched_once_and_kept(
    one_more: StoreOpener, provider: ToldProvider, clock: ManualClock
) -> None:
    machine = tracker(owner="app", grant="client_credentials")
    one, other = replica(await one_more(), provider, machine), replica(await one_more(), provider, machine)
    assert await one.check([need(machine)], NOBODY) == Ready()
    got = await asyncio.gather(*(each.token(need(machine), NOBODY) for each in (one, other) for _ in range(5)))
    assert set(got) == {"c4nary-access-2"}
    assert provider.asked == ["issues"]
    clock.advance(HOUR)
    got = await asyncio.gather(*(each.token(need(machine), ALICE) for each in (one, other) for _ in range(5)))
    assert set(got) == {"c4nary-access-3"}
    assert provider.asked == ["issues", "issues"]
    more = machine.scoped("admin")
    assert await one.token(more, ALICE) == "c4nary-access-4"
    assert provider.asked[2:] == ["issues admin"]
    assert await other.token(need(machine), ALICE) == "c4nary-access-4"


async def test_a_disconnect_tells_the_provider_and_forgets_whatever_it_says(store: Store, provider: ToldProvider) -> None:
    one = replica(store, provider)
    await one.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    done = await one.disconnect(tracker(), ALICE.id)
    assert (done.found, done.revoked) == (True, True)
    assert provider.revoked == [("c4nary-refresh-1", "refresh_token"), ("c4nary-access-1", "access_token")]
    assert await one.check([need()], ALICE) == NeedsSignIn(need(), "missing", ("issues",))
    again = await one.disconnect(tracker(), ALICE.id)
    assert (again.found, again.revoked) == (False, None)
    provider.revokes = lost()
    await one.keep(tracker(), ALICE.id, grant(2), ACCOUNT)
    assert (await one.disconnect(tracker(), ALICE.id)).revoked is False
    provider.revokes = False
    await one.keep(tracker(), ALICE.id, grant(3), ACCOUNT)
    assert (await one.disconnect(tracker(), ALICE.id)).revoked is None
    assert await one.listed() == []


async def test_another_client_or_provider_uses_nothing_of_the_one_before(store: Store, provider: ToldProvider) -> None:
    before, after = replica(store, provider), tracker(client_id="another")
    await before.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    now = replica(store, provider, after)
    assert await now.check([need(after)], ALICE) == NeedsSignIn(need(after), "missing", ("issues",))
    assert entry_name(after, ALICE.id) != entry_name(tracker(), ALICE.id)
    assert (await now.disconnect(after, ALICE.id)).found  # and a disconnect forgets what is left of it
    assert await now.listed() == []


async def test_a_token_is_shown_to_nobody_but_the_provider_that_gave_it(
    store: Store, provider: ToldProvider, clock: ManualClock
) -> None:
    """An MCP server may name another provider any day, one that collects refresh tokens."""
    one = replica(store, provider)
    await one.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    await one.keep(tracker(), BOB.id, grant(11), ACCOUNT)
    provider.issuer = "https://evil.example"
    assert (await one.disconnect(tracker(), BOB.id)).revoked is None
    clock.advance(HOUR)
    assert await one.check([need()], ALICE) == NeedsSignIn(need(), "refused", ("issues",))
    assert (provider.asked, provider.revoked) == ([], [])
    await one.keep(tracker(), ALICE.id, grant(2), ACCOUNT)
    clock.advance(HOUR)
    assert await one.check([need()], ALICE) == Ready()
    assert provider.asked == ["c4nary-refresh-2"]


async def test_lists_say_whose_account_and_nothing_secret(store: Store, provider: ToldProvider) -> None:
    one = replica(store, provider)
    await one.keep(tracker(), ALICE.id, grant(1), ACCOUNT)
    await one.keep(tracker(), BOB.id, grant(2), None)
    found = {listed.owner: listed for listed in await one.listed()}
    assert found.keys() == {ALICE.id, BOB.id}
    assert found[ALICE.id].account == "alice@tracker"
    assert (found[ALICE.id].scopes, found[ALICE.id].signed_in_at) == (("issues",), START)
    assert [listed.owner for listed in await one.listed(owner=BOB.id)] == [BOB.id]
    assert "c4nary" not in repr(found)
