"""Signing in from a thread of Slack: what everybody sees, what one person sees, and where it goes on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from bot import Agent, Bot, OAuthConnection, ToolContext, tool
from bot.history import ResultItem
from bot.model import ModelReply, ModelRequest, OnText
from bot.testing import FakeSlack, running
from bot.testing.app import App
from bot.testing.slack import Message, Said
from bot.testing.slack.cast import ALL_SCOPES
from channels.slack import Slack
from tests.bot.session.actors import calls, says
from tests.bot.signins.authority import Authority, authority
from tests.bot.signins.browser import Browser

WORDS = "issue [free](https://evil.example) www.evil.example https://evil.example"


class Model:
    """Opens an issue, then repeats what came of it."""

    name = "told"

    async def reply(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        last = request.history[-1]
        if isinstance(last, ResultItem):
            return says(str(last.content))
        return calls(("open_issue", {"title": str(getattr(last, "text", ""))[:30]}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """A Slack, a bot in it, and the account that it needs."""

    slack: FakeSlack
    app: App
    tracker: Authority

    def direct(self, user: str) -> list[Message]:
        """What the bot and somebody say to each other alone."""
        return [one for one in self.slack.visible_to(user) if not self.slack.channel(one.channel).name]

    async def asked(self) -> tuple[Said, Message]:
        """Alice asks; her private card."""
        said = await self.slack.mention("alice", "general", WORDS)
        return said, await self.slack.until(lambda: next((one for one in self.direct("alice") if one.buttons), None))

    async def linked(self, card: Message) -> str:
        """Alice presses Connect; the link that she is told."""
        before = len(self.direct("alice"))
        await self.slack.click(card, "Connect Tracker", "alice")
        (told,) = await self.slack.until(lambda: self.direct("alice")[before:])
        (link,) = told.links
        return link


@asynccontextmanager
async def desk(*, sign_in: bool = True, emails: bool = True) -> AsyncIterator[Desk]:
    scopes = ALL_SCOPES if emails else ALL_SCOPES - {"users:read.email"}
    async with authority() as tracker, FakeSlack(scopes=scopes) as slack:
        connection = OAuthConnection(
            "tracker",
            title="Tracker",
            client_id="app",
            client_secret="CANARY-client-secret",
            authorize_url=f"{tracker.url}/authorize",
            token_url=f"{tracker.url}/token",
            userinfo_url=f"{tracker.url}/userinfo",
            scopes=("issues",),
            verifies_email=True,
        )

        @tool(effect="write", connections=[connection])
        async def open_issue(ctx: ToolContext[None], title: str) -> str:
            """Open an issue."""
            return "opened TRK-1"

        channel = Slack(
            bot_token=slack.token,
            signing_secret=slack.signing_secret,
            api_url=slack.api_url,
            client_id=slack.openid.client_id if sign_in else "",
            client_secret=slack.openid.client_secret if sign_in else "",
        )
        bot = Bot(agents=[Agent("support", Model(), tools=[open_issue])], channels=[channel], connections=[connection])
        async with running(bot, slack=slack) as app:
            yield Desk(slack=slack, app=app, tracker=tracker)


async def test_a_thread_waits_for_its_person_and_goes_on_as_them() -> None:
    async with desk() as at, Browser() as alice:
        said, card = await at.asked()
        slack = at.slack
        assert [button.label for button in card.buttons] == ["Connect Tracker", "Cancel"]
        status = (await slack.until(lambda: slack.replies(said)))[0]
        assert "waiting for Alice to connect Tracker" in status.words
        assert (status.buttons, status.links, card.links) == ((), (), ())
        assert not [one for one in slack.visible_to("bob") if "Connect" in one.words]

        link = await at.linked(card)
        assert link.startswith(f"{at.app.url}/connect/")
        assert slack.world.unfurled == []
        told = at.direct("alice")[-1]
        assert not told.ephemeral
        assert link.rpartition("/")[2] not in json.dumps([one.words for one in slack.visible_to("bob")])

        page = await alice.open(link)
        assert "Slack" in page.text
        page = await alice.press()
        assert page.next.startswith(f"{slack.openid.base}/openid/connect/authorize?"), page.text
        assert f"team={slack.workspace.id}" in page.next
        page = await alice.open(slack.openid.choose(page.next, "alice"))
        while page.next:
            page = await alice.go_on()
        assert page.url.startswith(f"{at.app.url}/connect/done/"), page.text
        assert "alice@tracker" in page.text
        assert slack.channel("general").id in page.html  # the way back to the thread

        (answer,) = await slack.until(lambda: slack.replies(said)[1:])
        assert "opened TRK-1" in answer.words
        await slack.until(lambda: "Alice connected Tracker" in slack.replies(said)[0].words)
        settled = slack.replies(said)[0]
        assert (settled.ts, settled.buttons, "Paused" in settled.words) == (status.ts, (), False)
        assert settled.words.count("Alice connected Tracker") == 1
        await slack.until(lambda: not next(one for one in at.direct("alice") if one.ts == card.ts).buttons)
        assert "alice@tracker" not in json.dumps([one.words for one in slack.visible_to("bob")])
        assert "CANARY" not in json.dumps([one.words for one in slack.visible_to("alice")])


async def test_whoever_was_sent_the_link_and_is_somebody_else_connects_nothing() -> None:
    async with desk() as at, Browser() as bob:
        said, card = await at.asked()
        link = await at.linked(card)
        await bob.open(link)
        page = await bob.press()
        page = await bob.open(at.slack.openid.choose(page.next, "bob"))
        assert page.status == 403
        assert "alice@tracker" not in page.text
        assert at.tracker.authorized == []
        assert len(at.slack.replies(said)) == 1
        assert "Paused" in at.slack.replies(said)[0].words


async def test_cancel_ends_it_for_everybody_to_see() -> None:
    async with desk() as at:
        said, card = await at.asked()
        await at.slack.click(card, "Cancel", "alice")
        await at.slack.until(lambda: "did not connect Tracker" in at.slack.replies(said)[0].words)
        await at.slack.until(lambda: not next(one for one in at.direct("alice") if one.ts == card.ts).buttons)
        assert at.tracker.authorized == []


@pytest.mark.parametrize("emails", [True, False])
async def test_without_signing_in_to_slack_the_address_or_a_code_is_the_proof(emails: bool) -> None:
    async with desk(sign_in=False, emails=emails) as at, Browser() as alice:
        said, card = await at.asked()
        link = await at.linked(card)
        words = at.direct("alice")[-1].words
        await alice.open(link)
        code = "".join(char for char in words.partition("`")[2].partition("`")[0] if char.isdigit())
        assert (code == "") is emails
        page = await alice.press() if emails else await alice.press(code=code)
        assert page.next.startswith(f"{at.tracker.url}/authorize?"), page.text
        page = await alice.go_on()
        assert "alice@tracker" in page.text
        await at.slack.until(lambda: any("opened TRK-1" in one.words for one in at.slack.replies(said)))


async def test_in_a_direct_message_one_card_does_for_both() -> None:
    async with desk(sign_in=False) as at, Browser() as alice:
        await at.slack.direct("alice", "issue Broken")
        card = await at.slack.until(lambda: next((one for one in at.direct("alice") if one.buttons), None))
        assert len([one for one in at.direct("alice") if one.from_bot]) == 1
        link = await at.linked(card)
        await alice.open(link)
        await alice.press()
        await alice.go_on()
        await at.slack.until(lambda: any("opened TRK-1" in one.words for one in at.direct("alice")))
        await at.slack.until(lambda: not any(one.buttons for one in at.direct("alice")))


async def test_nobody_else_presses_connect_for_their_own_account() -> None:
    async with desk() as at:
        _, card = await at.asked()
        with pytest.raises(LookupError):
            await at.slack.click(card, "Connect Tracker", "bob")
        other = next(one for one in card.buttons if one.label == "Connect Tracker")
        said = await at.slack.message("bob", "general", "hello")
        forged = Message(said.channel, said.ts, author="bob", text="", buttons=(other,))
        await at.slack.click(forged, "Connect Tracker", "bob")
        (told,) = await at.slack.until(lambda: at.slack.whispers("bob"))
        assert "Only the person who asked" in told.words
        assert not [one for one in at.slack.visible_to("bob") if one.links]
