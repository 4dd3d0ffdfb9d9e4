"""Forms in the simulated Slack, and the real adapter's forms in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from bot.testing import FakeSlack
from bot.testing.slack.refusals import Refused
from bot.testing.slack.views import checked
from channels import Button, Card, Click, Delivery, DeliveryFailed, Form, FormField, Outbound, WebhookRequest
from channels.events import Event
from channels.slack import Slack
from channels.slack.address import SlackAddress
from channels.slack.modal import modal
from tests.bot.testing.kit import harbour, listening

FORM = Form(
    "Deny with a note",
    "prm_1:deny",
    submit="Deny",
    fields=(FormField("note", "Why?", multiline=True, required=True), FormField("edit.amount", "amount", value="140")),
)
CARD = Card("Refund 140?", buttons=(Button("Deny", "prm_1:deny"), Button("Deny with a note", "prm_1:?deny", form=FORM)))
ADDRESS = "slack:v1:-:T1:C1:1.1"


@dataclass
class App:
    """The adapter and what it hears; forms are opened once the click is answered, as an app does it."""

    slack: FakeSlack
    channel: Slack
    heard: list[Event] = field(default_factory=list)
    failed: list[DeliveryFailed] = field(default_factory=list)
    opening: list[asyncio.Task[None]] = field(default_factory=list)

    async def hear(self, request: web.Request) -> web.Response:
        given = WebhookRequest("POST", request.path, headers=tuple(request.headers.items()), body=await request.read())
        ingress = self.channel.parse(await self.channel.verify(given))
        self.heard += ingress.events
        for event in ingress.events:
            if isinstance(event, Click) and event.trigger and event.value == "prm_1:?deny":
                self.opening.append(asyncio.create_task(self.open(event)))
        answer = ingress.response
        return web.Response() if answer is None else web.Response(body=answer.body, content_type=answer.content_type)

    async def open(self, click: Click) -> None:
        try:
            await self.channel.open_form(click, FORM, question="Refund 140?")
        except DeliveryFailed as error:
            self.failed.append(error)

    @property
    def clicks(self) -> list[Click]:
        return [event for event in self.heard if isinstance(event, Click)]


@asynccontextmanager
async def asked() -> AsyncIterator[tuple[App, Any]]:
    """An app that has shown a card to be answered with a form, and the card."""
    async with FakeSlack() as slack:
        channel = Slack(bot_token=slack.token, signing_secret=slack.signing_secret, api_url=slack.api_url)
        app = App(slack, channel)
        server = web.Application()
        server.add_routes([web.post("/events", app.hear)])
        runner = web.AppRunner(server, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        slack.events_url = f"http://127.0.0.1:{runner.addresses[0][1]}/events"
        try:
            said = await slack.mention("alice", "general", "refund 140")
            address = SlackAddress("", slack.workspace.id, said.channel, said.ts).encode()
            await channel.send(Delivery("dlv_1", 1, address=address, message=Outbound(card=CARD)))
            yield app, slack.card(said)
        finally:
            await asyncio.gather(*app.opening)
            await slack.settled()
            slack.events_url = ""
            await runner.cleanup()
            await channel.close()


async def test_a_form_opens_for_who_clicked_and_comes_back_filled_in() -> None:
    async with asked() as (app, card):
        await app.slack.click(card, "Deny with a note", "alice")
        form = await app.slack.until(lambda: app.slack.modal("alice"))
        assert app.slack.modal("bob") is None
        assert form.title == "Deny with a note"
        assert form.fields == {"Why?": "", "amount": "140"}
        assert "Refund 140?" in form.words
        posting = await app.slack.submit(form, {"Why?": "Not this month", "amount": "20"})
        assert posting.attempts[-1].body == b""
        assert app.slack.modal("alice") is None
        opened, sent = app.clicks
        assert (sent.value, sent.fields) == ("prm_1:deny", {"note": "Not this month", "edit.amount": "20"})
        assert (sent.address, sent.author) == (opened.address, opened.author)
        again = await app.slack.repeat(posting)
        assert again.ok
        assert app.clicks[-1] == sent


async def test_a_form_carries_nothing_but_its_value_and_place() -> None:
    async with asked() as (app, card):
        await app.slack.click(card, "Deny with a note", "alice")
        form = await app.slack.until(lambda: app.slack.modal("alice"))
        carried = json.loads(form.view["private_metadata"])
        assert carried == {"value": "prm_1:deny", "address": app.clicks[-1].address}


async def test_a_form_that_comes_too_late_is_lost_and_the_button_is_still_there() -> None:
    async with asked() as (app, card):
        await app.slack.click(card, "Deny", "alice")
        late = app.clicks[-1]
        await app.slack.advance(timedelta(seconds=4))
        with pytest.raises(DeliveryFailed, match="expired_trigger_id"):
            await app.channel.open_form(late, FORM, question="?")
        assert app.slack.modal("alice") is None
        await app.slack.click(card, "Deny with a note", "alice")
        await app.slack.until(lambda: app.slack.modal("alice"))
        with pytest.raises(DeliveryFailed, match="exchanged_trigger_id"):
            await app.channel.open_form(app.clicks[-1], FORM, question="?")


async def test_what_the_client_would_not_send_is_not_sent() -> None:
    async with asked() as (app, card):
        await app.slack.click(card, "Deny with a note", "alice")
        form = await app.slack.until(lambda: app.slack.modal("alice"))
        with pytest.raises(ValueError, match="filled in"):
            await app.slack.submit(form)
        with pytest.raises(ValueError, match="too long"):
            await app.slack.submit(form, {"Why?": "x" * 3_001})
        with pytest.raises(LookupError, match="no field"):
            await app.slack.submit(form, {"Whom?": "x"})
        await app.slack.submit(form, {"Why?": "x"})
        with pytest.raises(LookupError, match="not open"):
            await app.slack.submit(form, {"Why?": "x"})


@pytest.mark.parametrize(
    ("status", "body", "trouble"),
    [
        (200, b'{"response_action":"errors","errors":{"note":"No."}}', ""),
        (200, b'{"response_action":"errors","errors":{"nope":"No."}}', "invalid_errors"),
        (200, b"ok", "Expecting value"),
        (200, b'{"text":"ok"}', "unknown_answer"),
        (200, b'{"response_action":"close"}', "unknown_response_action"),
        (500, b"", "no_200"),
    ],
)
async def test_an_answer_that_is_none_leaves_the_form_open(status: int, body: bytes, trouble: str) -> None:
    async def answer(_number: int) -> web.Response:
        return web.Response(status=status, body=body)

    async with harbour() as (slack, call), listening(slack) as ear:
        await slack.command("alice", "general", "/ask")
        view = modal(FORM, address=ADDRESS, question="?")
        await call("views.open", trigger_id=ear.payloads[-1]["trigger_id"], view=view)
        form = slack.modal("alice")
        assert form is not None
        ear.answer = answer
        await slack.submit(form, {"Why?": "x"})
        assert slack.modal("alice") is form
        assert trouble in form.trouble
        assert form.errors == ({} if trouble else {"note": "No."})


def _without(view: dict[str, Any], *path: Any) -> dict[str, Any]:
    tree = json.loads(json.dumps(view))
    node = tree
    for name in path[:-1]:
        node = node[name]
    del node[path[-1]]
    return tree


def _with(view: dict[str, Any], value: Any, *path: Any) -> dict[str, Any]:
    tree = json.loads(json.dumps(view))
    node = tree
    for name in path[:-1]:
        node = node[name]
    node[path[-1]] = value
    return tree


GOOD = modal(FORM, address=ADDRESS, question="Refund 140?")


@pytest.mark.parametrize(
    "view",
    [
        _without(GOOD, "title"),
        _without(GOOD, "submit"),
        _without(GOOD, "blocks"),
        _without(GOOD, "blocks", 1, "label"),
        _without(GOOD, "blocks", 1, "element"),
        _with(GOOD, "home", "type"),
        _with(GOOD, "x" * 25, "title", "text"),
        _with(GOOD, "mrkdwn", "title", "type"),
        _with(GOOD, "x" * 3_001, "private_metadata"),
        _with(GOOD, "x" * 256, "callback_id"),
        _with(GOOD, "Refund", "text"),
        _with(GOOD, "yes", "blocks", 1, "optional"),
        _with(GOOD, "", "blocks", 2, "element", "initial_value"),
        _with(GOOD, "x" * 3_001, "blocks", 2, "element", "initial_value"),
        _with(GOOD, 3_001, "blocks", 1, "element", "max_length"),
        _with(GOOD, "button", "blocks", 1, "element", "type"),
        _with(GOOD, "x", "blocks", 1, "element", "value"),
        _with(GOOD, "edit.amount", "blocks", 1, "block_id"),
    ],
)
def test_a_view_that_slack_refuses_is_refused(view: dict[str, Any]) -> None:
    checked(json.loads(json.dumps(GOOD)))
    with pytest.raises(Refused):
        checked(view)


@pytest.mark.parametrize("text", ["", " ", "x" * 3_000, "ab\u200bc*<&" * 400, "1\n2", "<!channel>"])
def test_whatever_a_form_asks_slack_opens_it(text: str) -> None:
    fields = [FormField(f"{number}{text[:100] or 'n'}", text, value=text[:3_000]) for number in range(20)]
    form = Form(text, "prm_1:deny", submit=text, fields=tuple(fields))
    view = json.loads(json.dumps(modal(form, address=ADDRESS, question=text)))
    checked(view)
    assert [block["element"].get("initial_value", "") for block in view["blocks"] if block["type"] == "input"] == [
        field.value for field in fields
    ]


async def test_an_option_of_a_list_is_chosen() -> None:
    options = tuple(Button(f"Region {number}", f"prm_1:r{number}", description="near") for number in range(1, 9))
    async with asked() as (app, _):
        said = await app.slack.mention("bob", "general", "run it")
        address = SlackAddress("", app.slack.workspace.id, said.channel, said.ts).encode()
        card = Card("Which?", buttons=options, display="select")
        await app.channel.send(Delivery("dlv_2", 1, address=address, message=Outbound(card=card)))
        (shown,) = app.slack.replies(said)
        assert [choice.description for choice in shown.choices] == ["near"] * 8
        await app.slack.click(shown, "Region 3", "bob")
        assert (app.clicks[-1].value, app.clicks[-1].address) == ("prm_1:r3", address)
