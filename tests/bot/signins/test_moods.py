"""A provider that doesn't do its part: a clear page, a clear line in private, and a request that can be tried again.

What lives here: every mood, and what is told of it. What does not: attackers (test_attacks.py), what the protocol itself refuses
(tests/bot/connections/protocol/).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from durable_core.model import PromptOutcome
from tests.bot.signins.browser import Browser
from tests.bot.signins.desk import Desk, open_desk, through

AGAIN = "Nothing was connected. Press Connect in the conversation again."


@dataclass(frozen=True, slots=True)
class Mood:
    """What the provider does at the exchange, and what is told of it."""

    name: str
    status: int
    body: object
    told: str


NONSENSE = f"Tracker gave an answer that can't be trusted. {AGAIN}"
MOODS = [
    Mood("an error in a 200", 200, {"error": "bad_verification_code"}, f"Tracker refused (invalid_grant). {AGAIN}"),
    Mood("refused", 400, {"error": "invalid_grant"}, f"Tracker refused (invalid_grant). {AGAIN}"),
    Mood("the app is not known", 401, {"error": "invalid_client"}, f"Tracker refused (invalid_client). {AGAIN}"),
    Mood("an empty object", 200, {}, NONSENSE),
    Mood("nested", 200, {"data": {"access_token": "CANARY"}}, NONSENSE),
    Mood("of the wrong type", 200, {"access_token": {"value": "CANARY"}, "token_type": "Bearer"}, NONSENSE),
    Mood("an empty token", 200, {"access_token": "", "token_type": "Bearer"}, NONSENSE),
    Mood("no JSON", 200, None, NONSENSE),
    Mood("a list", 200, ["CANARY"], NONSENSE),
    Mood("out of order", 503, {}, f"Tracker did not answer. {AGAIN}"),
]


@pytest.mark.parametrize("mood", MOODS, ids=lambda mood: mood.name)
async def test_a_bad_answer_stores_nothing_and_can_be_tried_again(desk: Desk, alice: Browser, mood: Mood) -> None:
    desk.provider.raw = (mood.status, b"<html>" if mood.body is None else json.dumps(mood.body).encode())
    prompt_id = await desk.asked()
    offer, page = await through(desk, alice, prompt_id)
    assert page.status == 400
    assert mood.told in page.text
    assert await desk.lines() == [("chat:alice", mood.told)]
    assert (await desk.prompt(prompt_id)).outcome is None
    assert await desk.credential() is None
    assert len(desk.provider.exchanged) == 1
    attempt = await desk.attempt(offer)
    assert (attempt.code, attempt.verifier) == ("", "")
    desk.provider.raw = None
    _, page = await through(desk, alice, prompt_id)
    assert page.status == 200
    assert (await desk.prompt(prompt_id)).outcome is PromptOutcome.APPROVED


async def test_a_provider_that_is_down(desk: Desk, alice: Browser) -> None:
    prompt_id = await desk.asked()
    offer = await desk.offered(prompt_id)
    await alice.open(offer.url)
    await alice.press(code=offer.code or "")
    back = (await alice.go_on(follow=False)).headers["Location"]
    await desk.provider.stop()
    page = await alice.open(back)
    assert page.status == 400
    assert f"Tracker did not answer. {AGAIN}" in page.text
    assert await desk.lines() == [("chat:alice", f"Tracker did not answer. {AGAIN}")]


async def test_a_provider_that_describes_itself_and_is_down_leaves_the_link_good(tmp_path: Path, alice: Browser) -> None:
    async with open_desk(tmp_path, discovered=True) as desk:
        await desk.provider.stop()
        prompt_id = await desk.asked()
        offer = await desk.offered(prompt_id)
        await alice.open(offer.url)
        page = await alice.press(code=offer.code or "")
        assert page.status == 400
        assert await desk.lines() == [("chat:alice", f"Tracker did not answer. {AGAIN}")]
        await desk.provider.start()
        await alice.open(offer.url)
        assert (await alice.press(code=offer.code or "")).next
        assert (await alice.go_on()).status == 200


async def test_a_slow_provider_keeps_nobody_waiting(tmp_path: Path, alice: Browser) -> None:
    async with open_desk(tmp_path, patience=0.0) as desk:
        desk.provider.gate = asyncio.Event()
        prompt_id = await desk.asked()
        _, page = await through(desk, alice, prompt_id)
        assert page.status == 200
        assert page.next == "" or page.next.endswith(page.url.rpartition("/")[2])
        assert "alice@tracker" not in page.text
        assert (await desk.prompt(prompt_id)).outcome is None
        await desk.provider.asked.wait()
        desk.provider.gate.set()
        await desk.sign_ins.close(5)
        assert "alice@tracker" in (await alice.open(page.url)).text
        assert (await desk.prompt(prompt_id)).outcome is PromptOutcome.APPROVED


async def test_less_than_was_asked_for_ends_the_call_with_the_reason(desk: Desk, alice: Browser) -> None:
    desk.provider.token["scope"] = "read"
    prompt_id = await desk.asked(scopes=("issues", "read"))
    _, page = await through(desk, alice, prompt_id)
    told = "Tracker did not allow all that is needed: issues is missing. Nothing was connected."
    assert page.status == 400
    assert told in page.text
    prompt = await desk.prompt(prompt_id)
    assert (prompt.outcome, prompt.option_id) == (PromptOutcome.DENIED, "declined")
    assert await desk.note(prompt_id) == {"text": told}
    assert await desk.credential() is None
    assert desk.provider.revoked == ["CANARY-refresh", "CANARY-access"]


async def test_less_than_was_asked_for_leaves_what_was_there(desk: Desk, alice: Browser) -> None:
    await through(desk, alice, await desk.asked())
    desk.provider.token["scope"] = "issues"
    await through(desk, alice, await desk.asked(scopes=("issues", "admin")))
    assert desk.provider.revoked == []
    assert await desk.credential() is not None


async def test_another_account_than_before_is_told(desk: Desk, alice: Browser) -> None:
    await through(desk, alice, await desk.asked())
    desk.provider.account = {"sub": "b-2", "name": "alice-at-work"}
    _, page = await through(desk, alice, await desk.asked(scopes=("issues", "admin")))
    assert page.status == 200
    assert "alice-at-work" in page.text
    assert "Another account was connected before: alice@tracker." in page.text


async def test_no_means_to_renew_is_told(desk: Desk, alice: Browser) -> None:
    desk.provider.token["refresh_token"] = None
    _, page = await through(desk, alice, await desk.asked())
    assert page.status == 200
    assert "asked again once it ends" in page.text
    assert await desk.credential() is not None


SILENT: list[tuple[str, Callable[[Desk], object]]] = [
    ("garbage", lambda desk: desk.provider.account.clear()),
    ("nobody", lambda desk: desk.provider.account.update(sub="")),
]


@pytest.mark.parametrize(("name", "change"), SILENT, ids=[name for name, _ in SILENT])
async def test_an_account_that_has_no_name_is_still_one(
    desk: Desk, alice: Browser, name: str, change: Callable[[Desk], object]
) -> None:
    change(desk)
    prompt_id = await desk.asked()
    _, page = await through(desk, alice, prompt_id)
    assert page.status == 200
    assert await desk.note(prompt_id) == {"account": "", "text": "Tracker is connected."}


async def test_nothing_of_a_sign_in_is_legible_in_the_database_or_the_log(
    desk: Desk, alice: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    offer, _ = await through(desk, alice, await desk.asked())
    desk.provider.raw = (400, b'{"error": "invalid_grant", "error_description": "CANARY-description"}')
    await desk.connections.disconnect(desk.connection, "chat:alice")
    refused, _ = await through(desk, alice, await desk.asked())
    stored = b"".join(path.read_bytes() for path in desk.database.parent.iterdir() if path.is_file())
    for text in (stored.decode("latin-1"), caplog.text):
        assert "CANARY" not in text
        for link in (offer, refused):
            assert link.url.partition(".")[2].rpartition(".")[2] not in text
            assert link.code is not None
    assert "/connect/callback/{connection} 303" in caplog.text
    assert "/connect/{token} 200" in caplog.text
    secrets = {value for url in alice.visited if "?" in url for value in url.partition("?")[2].split("&")}
    assert not [one for one in secrets if one.partition("=")[2] in caplog.text and one.startswith(("state", "code"))]
    assert not [value for value in alice.cookies().values() if value in caplog.text or value.encode() in stored]
