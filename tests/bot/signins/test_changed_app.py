"""An app that is deployed anew while somebody signs in: whose account it is, and who is shown what, stays as it was asked.

What lives here: connections that change between the question, the link and the callback. What does not: attacks from outside.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from bot.connections.protocol import TokenGrant
from bot.signins.attempt import Stage
from durable_core.model import PromptOutcome
from tests.bot.signins.browser import Browser
from tests.bot.signins.desk import ALICE, Desk, open_desk, through
from tests.bot.signins.test_attacks import away, nothing_came_of_it


def deploy(desk: Desk, **changes: Any) -> None:
    """Have the connection say something else from now on, in all replicas."""
    for replica in desk.replicas.all:
        replica.connections.by_name["tracker"] = replace(desk.connection, **changes)
        replica.connections._providers.clear()


async def test_an_account_that_becomes_the_apps_own_is_connected_by_nobody_who_was_asked_before(desk: Desk) -> None:
    """Alice was asked for hers. A link now would make hers everybody's, and she is no operator."""
    prompt_id = await desk.asked()
    deploy(desk, owner="app")
    offer = await desk.offered(prompt_id)
    assert (offer.url, offer.code) == ("", None)
    assert "whoever runs the app connects it" in offer.words
    await nothing_came_of_it(desk, prompt_id)


async def test_nor_by_a_link_of_before(desk: Desk, alice: Browser) -> None:
    prompt_id = await desk.asked()
    _, back = await away(desk, alice, prompt_id)
    deploy(desk, owner="app")
    await alice.open(back)
    assert await desk.connections.listed() == []
    assert desk.provider.exchanged == []


async def test_another_provider_is_shown_no_code_of_the_first(desk: Desk, alice: Browser) -> None:
    prompt_id = await desk.asked()
    _, back = await away(desk, alice, prompt_id)
    deploy(desk, token_url=f"{desk.provider.url}/token?other", client_id="other")
    page = await alice.open(back)
    assert page.status == 400
    assert "doesn't know this account any more" in page.text
    assert desk.provider.exchanged == []
    await nothing_came_of_it(desk, prompt_id)


async def test_nor_where_another_process_goes_on(desk: Desk, alice: Browser) -> None:
    prompt_id = await desk.asked()
    offer, _ = await away(desk, alice, prompt_id)
    kept = await desk.sign_ins.attempts.find((await desk.attempt(offer)).attempt_id)
    assert kept is not None
    await desk.sign_ins.attempts.move(kept, replace(kept.attempt, stage=Stage.RETURNED, code="CANARY-code-1"))
    deploy(desk, client_id="other")
    desk.later(minutes=1)
    await desk.sign_ins.sweep()
    assert (await desk.attempt(offer)).fault == "gone"
    assert desk.provider.exchanged == []


async def test_an_account_that_may_too_little_is_asked_for_again(desk: Desk, alice: Browser) -> None:
    """The one that is there is the one that was not enough: it is no answer, a new sign-in is."""
    grant = TokenGrant("CANARY-old", expires_in=None, scopes=("issues",))
    await desk.connections.keep(desk.connection, ALICE.id, grant, None)
    desk.later(minutes=1)
    prompt_id = await desk.asked(reason="scopes")
    offer, page = await through(desk, alice, prompt_id)
    assert offer.url
    assert page.status == 200
    assert len(desk.provider.exchanged) == 1
    prompt = await desk.prompt(prompt_id)
    assert (prompt.outcome, prompt.option_id) == (PromptOutcome.APPROVED, "connected")


async def test_one_that_was_connected_since_is_enough(desk: Desk) -> None:
    prompt_id = await desk.asked(reason="scopes")
    desk.later(minutes=1)
    grant = TokenGrant("CANARY-new", expires_in=None, scopes=("issues",))
    await desk.connections.keep(desk.connection, ALICE.id, grant, None)
    assert "connected already" in (await desk.offered(prompt_id)).words
    assert (await desk.prompt(prompt_id)).outcome is PromptOutcome.APPROVED


async def test_addresses_that_only_look_alike_are_not_the_same(tmp_path: Path, alice: Browser) -> None:
    """U+212A is folded to a k by Unicode: another mailbox for all that."""
    async with open_desk(tmp_path, verifies_email=True) as desk:
        desk.chat.emails["alice"] = "kate@example.test"
        desk.provider.account["email"] = "\N{KELVIN SIGN}ate@example.test"
        prompt_id = await desk.asked()
        await through(desk, alice, prompt_id)
        await nothing_came_of_it(desk, prompt_id)
