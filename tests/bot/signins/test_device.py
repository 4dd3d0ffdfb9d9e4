"""The device flow: a code told in private, a provider that is asked now and then, by whichever replica comes first.

What lives here: every way in which it ends, on both databases; deaths in between; a provider that nobody here wrote. What does
not: what a provider's first answer may hold (tests/bot/connections/protocol/).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.signins.attempt import Attempt, Stage
from bot.signins.device import ASKING_MS
from bot.signins.keeping import EXCHANGE_MS
from bot.signins.values import Offer
from durable_core.failpoints import arm
from durable_core.model import PromptOutcome
from tests.bot.signins.desk import ALICE, Desk, open_desk
from tests.oidc import OidcPeer

NOWHERE: dict[str, Any] = dict.fromkeys(("authorize_url", "token_url", "userinfo_url", "revoke_url"))
PENDING = {"error": "authorization_pending"}


class Died(Exception):
    """What a failpoint raises in place of the death of a process."""


def die() -> None:
    raise Died


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def device(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """Two replicas, of which each does the next thing."""
    url = request.getfixturevalue("migrated_url") if request.param == "postgres" else ""
    async with device_desk(tmp_path, postgres_url=url) as desk:
        desk.replicas.alternate = True
        yield desk


@asynccontextmanager
async def device_desk(folder: Path, **more: Any) -> AsyncIterator[Desk]:
    async with open_desk(folder, discovered=True, grant="device", **more) as desk:
        names = {"device_authorization": "device", "userinfo": "userinfo", "revocation": "revoke"}
        desk.provider.metadata = {f"{name}_endpoint": f"{desk.provider.url}/{path}" for name, path in names.items()}
        yield desk


def asked(desk: Desk) -> int:
    return sum("device_code" in one for one in desk.provider.exchanged)


async def test_a_code_is_told_and_the_provider_asked_until_the_person_is_done(device: Desk) -> None:
    device.provider.polled = [PENDING, {"scope": "issues"}]
    prompt_id = await device.asked()
    offer = await device.offered(prompt_id)
    assert offer.code == "WDJB-0001"
    assert offer.url == f"{device.provider.url}/activate"
    assert f"open {offer.url} and type this code: `WDJB-0001`" in offer.words
    assert "CANARY" not in f"{offer!r}{offer.words}"
    assert await device.sign_ins.sweep() == 0
    for _ in range(2):
        assert (await device.prompt(prompt_id)).outcome is None
        device.later(seconds=4)
        assert await device.sign_ins.sweep() == 0
        device.later(seconds=1)
        assert await device.sign_ins.sweep() == 1
    assert (await device.prompt(prompt_id)).outcome is PromptOutcome.APPROVED
    assert (await device.note(prompt_id))["text"] == "Tracker is connected as alice@tracker."
    credential = await device.credential()
    assert credential is not None
    assert credential.access_token == "CANARY-access"
    device.later(minutes=30)
    assert await device.sign_ins.sweep() == 0
    assert asked(device) == 2


async def test_slow_down_is_for_good(device: Desk) -> None:
    device.provider.polled = [{"error": "slow_down"}, {"error": "slow_down"}, PENDING]
    await device.offered()
    for seconds in (5, 10, 15, 15):
        device.later(seconds=seconds - 1)
        assert await device.sign_ins.sweep() == 0
        device.later(seconds=1)
        assert await device.sign_ins.sweep() == 1
    assert asked(device) == 4


async def test_replicas_that_look_at_once_ask_once(device: Desk) -> None:
    await device.offered()
    for number in range(1, 6):
        device.later(seconds=5)
        await asyncio.gather(*(replica.sweep() for replica in device.replicas.all for _ in range(3)))
        assert asked(device) == number


async def test_who_says_no(device: Desk) -> None:
    device.provider.polled = [{"error": "access_denied"}]
    prompt_id = await device.asked()
    await device.offered(prompt_id)
    device.later(seconds=5)
    await device.sign_ins.sweep()
    assert (await device.prompt(prompt_id)).outcome is PromptOutcome.DENIED
    assert await device.note(prompt_id) == {"text": "Alice declined at Tracker. Nothing was connected."}


@pytest.mark.parametrize(("polled", "seconds"), [([{"error": "expired_token"}], 5), ([], 600)])
async def test_a_code_that_is_over_is_told_and_another_one_works(device: Desk, polled: list[Any], seconds: int) -> None:
    device.provider.polled = list(polled)
    prompt_id = await device.asked()
    await device.offered(prompt_id)
    device.later(seconds=seconds)
    await device.sign_ins.sweep()
    assert (await device.prompt(prompt_id)).outcome is None
    [(reader, words)] = await device.lines()
    assert reader == ALICE.id
    assert words.endswith("Nothing was connected. Press Connect in the conversation for a new code.")
    device.provider.polled = [{"scope": "issues"}]
    assert (await device.offered(prompt_id)).code == "WDJB-0002"
    device.later(seconds=5)
    await device.sign_ins.sweep()
    assert (await device.prompt(prompt_id)).outcome is PromptOutcome.APPROVED


async def test_a_request_that_is_settled_is_asked_about_no_more(device: Desk) -> None:
    """Two codes for one request: what the second would bring is not asked for."""
    device.provider.polled = [{"scope": "issues"}]
    prompt_id = await device.asked()
    for _ in range(2):
        await device.offered(prompt_id)
    device.later(seconds=5)
    await device.sign_ins.sweep()
    assert (await device.prompt(prompt_id)).outcome is PromptOutcome.APPROVED
    device.later(minutes=1)
    await device.sign_ins.sweep()
    assert asked(device) == 1


async def test_a_provider_that_is_down_for_a_while(device: Desk) -> None:
    device.provider.polled = [{"scope": "issues"}]
    prompt_id = await device.asked()
    await device.offered(prompt_id)
    await device.provider.stop()
    device.later(seconds=5)
    await device.sign_ins.sweep()
    await device.provider.start()
    device.later(seconds=5)
    assert await device.sign_ins.sweep() == 0
    device.later(seconds=5)
    await device.sign_ins.sweep()
    assert (await device.prompt(prompt_id)).outcome is PromptOutcome.APPROVED


async def test_no_code_to_be_had(device: Desk) -> None:
    prompt_id = await device.asked()
    await device.provider.stop()
    offer = await device.offered(prompt_id)
    assert (offer.url, offer.code) == ("", None)
    assert "Press Connect in the conversation again." in offer.words
    await device.provider.start()
    assert (await device.offered(prompt_id)).code


async def test_a_process_that_dies_while_it_asks_is_followed_by_another(device: Desk) -> None:
    device.provider.polled = [{"scope": "issues"}]
    prompt_id = await device.asked()
    await device.offered(prompt_id)
    device.later(seconds=5)
    with arm("connect.before_exchange", die, on=1):
        await cut_off(device)
    device.later(milliseconds=ASKING_MS)
    await device.sign_ins.sweep()
    assert (await device.prompt(prompt_id)).outcome is PromptOutcome.APPROVED


@pytest.mark.parametrize("failpoint", ["connect.after_store", "connect.before_settle"])
async def test_what_is_kept_is_told_by_whoever_comes_next(device: Desk, failpoint: str) -> None:
    device.provider.polled = [{"scope": "issues"}]
    prompt_id = await device.asked()
    await device.offered(prompt_id)
    device.later(seconds=5)
    with arm(failpoint, die, on=1):
        await cut_off(device)
    assert (await device.prompt(prompt_id)).outcome is None
    device.later(milliseconds=EXCHANGE_MS)
    await device.sign_ins.sweep()
    assert (await device.prompt(prompt_id)).outcome is PromptOutcome.APPROVED
    assert await device.credential() is not None


async def test_a_grant_that_is_lost_is_asked_for_anew(device: Desk) -> None:
    """Between the provider's answer and the vault: the code is spent, nothing is kept, nobody is told that it worked."""
    device.provider.polled = [{"scope": "issues"}, {"error": "invalid_grant"}]
    prompt_id = await device.asked()
    await device.offered(prompt_id)
    device.later(seconds=5)
    with arm("connect.after_exchange", die, on=1):
        await cut_off(device)
    device.later(milliseconds=ASKING_MS)
    await device.sign_ins.sweep()
    assert (await device.prompt(prompt_id)).outcome is None
    assert await device.credential() is None
    assert any("Press Connect in the conversation again" in words for _, words in await device.lines())


async def cut_off(desk: Desk) -> None:
    """Sweep in a process that ends at a failpoint: what it would have done after that is not done."""
    [due] = await desk.sign_ins.attempts.due(10)
    with pytest.raises(Died):
        await desk.sign_ins.driving._go_on(due)


async def test_another_persons_account_is_not_bound_where_the_provider_tells_whose_it_is(tmp_path: Path) -> None:
    """A code can be passed on: whoever types it gives their account to who asked for it (RFC 8628 §5.4)."""
    async with device_desk(tmp_path, verifies_email=True) as desk:
        desk.chat.emails["alice"] = "alice@example.test"
        desk.provider.account = {"sub": "b", "name": "bob", "email": "bob@example.test", "email_verified": True}
        prompt_id = await desk.asked()
        for _ in range(2):
            desk.provider.polled = [{"scope": "issues"}]
            await desk.offered(prompt_id)
            desk.later(seconds=5)
            await desk.sign_ins.sweep()
            assert (await desk.prompt(prompt_id)).outcome is None
            assert await desk.credential() is None
            assert desk.provider.revoked[-2:] == ["CANARY-refresh", "CANARY-access"]
        assert "it has to be the account with that address" in (await desk.lines())[-1][1]


# ── a provider that nobody here wrote ──


@pytest.fixture
async def real(tmp_path: Path, oidc: OidcPeer) -> AsyncIterator[Desk]:
    oidc.client(
        "tv",
        redirect_uris=[],
        response_types=[],
        grant_types=["urn:ietf:params:oauth:grant-type:device_code", "refresh_token"],
        token_endpoint_auth_method="none",
        application_type="native",
    )
    own: dict[str, Any] = {"issuer": oidc.issuer, "client_id": "tv", "client_secret": None, "grant": "device"}
    scopes = ("openid", "profile", "email", "offline_access", "read")
    async with open_desk(tmp_path, trusted=[oidc.issuer], **own, **NOWHERE, scopes=scopes) as desk:
        yield desk


async def polled(desk: Desk) -> None:
    desk.later(seconds=5)
    assert await desk.sign_ins.sweep() == 1


def complete(offer: Offer) -> str:
    assert re.fullmatch(r"[A-Z]{4}-[A-Z]{4}", offer.code or "")
    return f"{offer.url}?user_code={offer.code}"


@pytest.mark.parametrize("deny", [False, True])
async def test_a_real_provider(real: Desk, oidc: OidcPeer, *, deny: bool) -> None:
    prompt_id = await real.asked(scopes=tuple(real.connection.scopes))
    offer = await real.offered(prompt_id)
    await polled(real)
    assert (await real.prompt(prompt_id)).outcome is None
    await oidc.approve_device(complete(offer), deny=deny)
    await polled(real)
    assert (await real.prompt(prompt_id)).outcome is (PromptOutcome.DENIED if deny else PromptOutcome.APPROVED)
    credential = await real.credential()
    assert (credential is None) is deny
    if credential is not None:
        assert (credential.account, bool(credential.refresh_token)) == ("Alice", True)


async def test_a_provider_that_hangs_holds_up_nobody_else(tmp_path: Path) -> None:
    """What another process has left is gone on with, while one provider is still being waited for."""
    async with device_desk(tmp_path) as desk:
        other = await desk.sign_ins.attempts.find((await _begun(desk)).attempt_id)
        assert other is not None
        await _begun(desk)
        desk.provider.gate = asyncio.Event()
        await desk.sign_ins.attempts.move(other, replace(other.attempt, stage=Stage.EXCHANGING))
        desk.later(milliseconds=EXCHANGE_MS)
        sweeping = asyncio.create_task(desk.sign_ins.sweep())
        async with asyncio.timeout(10):
            await desk.provider.asked.wait()
            while (
                found := await desk.sign_ins.attempts.find(other.attempt.attempt_id)
            ) is not None and not found.attempt.settled:
                await asyncio.sleep(0)
        assert not sweeping.done()
        desk.provider.gate.set()
        assert await sweeping == 2


async def test_another_provider_is_asked_about_no_code_of_the_first(device: Desk) -> None:
    device.provider.polled = [{"scope": "issues"}]
    prompt_id = await device.asked()
    await device.offered(prompt_id)
    for replica in device.replicas.all:
        replica.connections.by_name["tracker"] = replace(device.connection, client_id="other")
    device.later(seconds=5)
    await device.sign_ins.sweep()
    assert asked(device) == 0
    assert (await device.prompt(prompt_id)).outcome is None
    [(_, words)] = await device.lines()
    assert "doesn't know this account any more" in words


async def _begun(desk: Desk) -> Attempt:
    """Press Connect for a request of its own; the attempt that polls."""
    prompt_id = await desk.asked()
    await desk.offered(prompt_id)
    listed = await desk.store.vault_list(kind="sign-in", owner=ALICE.id, limit=100)
    for line in listed:
        found = await desk.sign_ins.attempts.find(line.name.partition("/")[2])
        if found is not None and found.attempt.prompt_id == prompt_id:
            return found.attempt
    raise AssertionError("no attempt was kept")
