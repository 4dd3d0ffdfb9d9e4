"""The contract cases of the project's adapters.

What lives here: one function for each adapter. What does not: tests.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from channels import Button, Card, Outbound, WebhookRequest
from channels.console import Console, ConsolePlatform, PendingEvent, ShownMessage
from channels.console.channel import ADDRESS
from channels.console.platform import SIGNATURE_HEADER
from channels.fallback import card_text
from channels.slack import Slack
from channels.slack.address import ADDRESS as SLACK_ADDRESS
from channels.slack.address import SlackAddress
from channels.testing import ChannelCase
from tests.channels.slack import fake, payloads

NOW = 1_800_000_000_000


def rendered(message: ShownMessage) -> str:
    """Return all that the page would show of a message."""
    lines = [message.text]
    if message.card is not None:
        card = Card.from_json(message.card)
        lines.append(card_text(card.bare))
        buttons = [button for one in (card, *card.items) for button in one.buttons]
        lines += [part for button in buttons for part in (button.label, button.description)]
    return "\n".join(lines)


@asynccontextmanager
async def console_case(make: Callable[[ConsolePlatform], Console] = Console) -> AsyncIterator[ChannelCase]:
    """Give the console channel on a platform in memory."""
    now = [NOW]
    platform = ConsolePlatform(":memory:", now=lambda: now[0])
    platform.page_url = "http://127.0.0.1:8000/console/"
    try:
        thread = await platform.create_thread("Contract")
        posted = await platform.post_person(thread.id, "alice", text="hello", client_id="c1")
        card = Outbound(card=Card("Sure?", buttons=(Button("Yes", "yes"),)))
        asked = await platform.post_bot("kit-setup", thread.id, outbound_json=card.to_json())
        click = await platform.click(thread.id, asked, author_id="alice", value="yes", client_id="c2")
        form = await platform.click(thread.id, asked, author_id="alice", value="yes", client_id="c3", fields={"note": "why not"})
        own = json.loads(posted.event.body)
        own["author"] |= {"id": "bot", "name": "Moorings", "standing": "bot"}

        async def request(body: bytes) -> WebhookRequest:
            return await platform.request(PendingEvent("evt_any", body, at=NOW, delivered=False))

        async def shown(reader: str) -> Sequence[str]:
            return [rendered(message) for message in await platform.messages(thread.id, viewer=reader)]

        good = await request(posted.event.body)
        now[0] += 301_000
        late = await request(posted.event.body)
        now[0] -= 602_000
        stale = await request(posted.event.body)
        now[0] += 301_000
        wrong = dict(good.headers) | {SIGNATURE_HEADER: "v1=" + "0" * 64}
        yield ChannelCase(
            make(platform),
            ADDRESS.encode(thread.id),
            codec=ADDRESS,
            tenancy=await platform.platform_id(),
            request=request,
            message_body=posted.event.body,
            click_body=click.body,
            form_body=form.body,
            own_post_body=json.dumps(own).encode(),
            shown=shown,
            reader="alice",
            stranger="bob",
            claims={"who": "alice"},
            email="alice@example.test",
            forged={
                "wrong": WebhookRequest("POST", good.path, headers=wrong, body=good.body),
                "stale": stale,
                "from the future": late,
            },
        )
    finally:
        await platform.close()


@asynccontextmanager
async def slack_case() -> AsyncIterator[ChannelCase]:
    """Give the Slack channel on a small Slack; its clock goes on with every post, as pacing asks for."""
    async with fake.mini_slack() as slack:
        client = {"client_id": "1.2", "client_secret": "kept to ourselves"}
        channel = Slack(bot_token="xoxb-test", signing_secret=payloads.SECRET, api_url=slack.url, now=slack.now, **client)
        confirmed = {"profile": {"email": "alice@harbour.example"}, "is_email_confirmed": True}
        slack.users["UALICE"] = {"id": "UALICE", "team_id": fake.TEAM} | confirmed
        message = payloads.as_json(payloads.envelope(payloads.mention()))
        good = payloads.signed(message)
        own = payloads.envelope(payloads.message("said by the bot", user=fake.BOT, bot_id=fake.BOT_ID))

        async def request(body: bytes) -> WebhookRequest:
            return payloads.signed(body, now=slack.now)

        async def shown(reader: str) -> Sequence[str]:
            return slack.shown(fake.CHANNEL, reader)

        try:
            yield ChannelCase(
                channel,
                SlackAddress("", fake.TEAM, fake.CHANNEL, fake.ROOT).encode(),
                codec=SLACK_ADDRESS,
                tenancy=fake.TEAM,
                request=request,
                message_body=message,
                click_body=payloads.as_form(payloads.click()),
                form_body=payloads.as_form(payloads.form()),
                own_post_body=payloads.as_json(own),
                shown=shown,
                reader="UALICE",
                stranger="UBOB",
                claims={"https://slack.com/user_id": "UALICE", "https://slack.com/team_id": fake.TEAM, "sub": "UALICE"},
                email="alice@harbour.example",
                forged={
                    "wrong": WebhookRequest(
                        "POST", good.path, headers=dict(good.headers) | {"X-Slack-Signature": "v0=" + "0" * 64}, body=message
                    ),
                    "stale": payloads.signed(message, now=lambda: fake.NOW - 301_000),
                    "from the future": payloads.signed(message, now=lambda: fake.NOW + 301_000),
                    "signed by another": payloads.signed(message, secret="other"),
                },
            )
        finally:
            await channel.close()
