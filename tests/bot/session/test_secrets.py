"""A secret argument runs and nobody sees it: not on the card, in the stream, over the API, nor as what was shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, Field

from bot.approvals import Approval, ToolCall
from bot.context import ToolContext
from bot.history import ResultStatus
from bot.masks import Secret
from bot.policies import deny
from bot.principal import Principal
from bot.tools import tool
from durable_core import codec
from durable_core.model import AnswerStatus
from tests.bot.session.actors import Log
from tests.bot.session.gated import answered, ask, body, prompts, results
from tests.bot.session.kit import ALICE, BOB, Thread
from tests.bot.session.test_interruption import killed_at

TOKEN, PIN = "tok-hunter2-abcdef", "pin-hunter2-4711"


class Login(BaseModel):
    user: str
    pin: Annotated[str, Secret]


def by(call: ToolCall, who: Principal) -> bool:
    return who.id == BOB.id and call.arguments["login"].pin == PIN


@tool(
    approval=Approval(
        ask="Connect {host} with {token} as {login}?", by=by, by_text=lambda call: f"Who knows {call.arguments['token']}"
    )
)
async def connect(ctx: ToolContext[Log], host: str, token: Annotated[str, Field(min_length=10), Secret], login: Login) -> str:
    """Connect."""
    await ctx.deps.run("connect", ctx)
    if host == "down":
        raise ConnectionError(f"{host} refused {token}")
    ctx.deps.ended.append(f"{token} {login.pin}")
    return f"logged in with {token}"


def asked(host: str = "db") -> tuple[str, dict[str, Any]]:
    return ("connect", {"host": host, "token": TOKEN, "login": {"user": "root", "pin": PIN}})


async def told(thread: Thread) -> str:
    """Everything that people, readers of the stream and the audit get to see."""
    shown = [str(shown.message) for shown in thread.channel.shown]
    events = [str(event.data) for event in await thread.events()]
    rows = await thread.store.rows("SELECT prompt_id FROM moor_prompt", {})
    bodies = [str(codec.decode((await thread.store.prompt(str(row[0]))).body)) for row in rows]
    return "\n".join([*shown, *events, *bodies])


async def test_it_runs_and_is_shown_nowhere(thread: Thread) -> None:
    await ask(thread, asked(), tools=(connect,))
    prompt = await thread.prompt()
    stored = body(prompt)
    assert stored["text"] == 'Connect db with ••• as {"user": "root", "pin": "•••"}?'
    assert stored["action"]["input"] == {"host": "db", "token": "•••", "login": {"user": "root", "pin": "•••"}}
    assert stored["fields"][2:] == [["token", "•••"], ["login", '{"user": "root", "pin": "•••"}']]
    assert stored["masked"] == ["token", "login"]
    assert stored["waiting_for"] == "Who knows •••"
    receipt = await answered(thread, "approve", BOB)
    assert receipt.status is AnswerStatus.SETTLED  # `by` was given the real values
    assert thread.log.ended == ["connect", f"{TOKEN} {PIN}"]
    assert results(thread) == [(ResultStatus.COMPLETED, "logged in with •••")]
    seen = await told(thread)
    assert "•••" in seen
    assert TOKEN not in seen
    assert PIN not in seen


async def test_an_error_that_repeats_it_is_masked(thread: Thread) -> None:
    await ask(thread, asked("down"), tools=(connect,))
    await answered(thread, "approve", BOB)
    assert results(thread) == [(ResultStatus.FAILED, "ConnectionError: down refused •••")]
    assert TOKEN not in await told(thread)


async def test_a_policy_that_repeats_it_in_its_reason_is_masked(thread: Thread) -> None:
    no = Approval(when=lambda call: deny(f"{call.arguments['token']} is known to be stolen"))
    await ask(thread, asked(), tools=(replace(connect, approval=no),))
    assert results(thread) == [
        (ResultStatus.REJECTED, "The policy of connect refused this call: ••• is known to be stolen. It did not run.")
    ]
    assert TOKEN not in await told(thread)


async def test_arguments_that_do_not_fit_are_masked_whole(thread: Thread) -> None:
    await ask(thread, ("connect", {"host": "db", "tokn": TOKEN, "login": {"user": "root", "pin": PIN}}), tools=(connect,))
    assert await prompts(thread) == []
    assert TOKEN not in await told(thread)
    assert PIN not in await told(thread)


async def test_it_is_not_shown_when_it_is_asked_whether_to_run_again(thread: Thread) -> None:
    await ask(thread, asked(), tools=(connect,))
    await thread.click("approve", BOB)
    (interaction,) = await thread.store.take_interactions(thread.owner, limit=1, lease_ms=1000)
    await thread.answers.evaluate(interaction)
    await killed_at(thread, "tool.after_effect")
    await thread.work()
    assert (await thread.prompt()).kind == "rerun"
    assert (await answered(thread, "rerun", ALICE)).status is AnswerStatus.REFUSED
    assert (await answered(thread, "rerun", BOB)).status is AnswerStatus.SETTLED
    assert thread.log.ended[-1] == f"{TOKEN} {PIN}"
    assert TOKEN not in await told(thread)


async def test_the_digest_that_is_shown_is_none_of_the_secret(thread: Thread) -> None:
    await ask(thread, asked(), tools=(connect,))
    assert body(await thread.prompt())["binding"] == connect.binding(connect.shown(asked()[1]))
    assert body(await thread.prompt())["binding"] != connect.binding(asked()[1])
    await thread.cancel()
    await thread.work()


async def test_what_is_given_to_a_tool_that_is_gone_is_masked_as_a_whole(thread: Thread) -> None:
    """Renamed with a deploy, say: the model goes on with the old name, and nothing says any more which argument is secret."""
    await ask(thread, ("connect_db", {"host": "db", "token": TOKEN}), tools=(connect,))
    [(action,)] = [event.data["actions"] for event in await thread.events() if event.type == "actions.requested"]
    assert action["input"] == {"host": "•••", "token": "•••"}
    assert TOKEN not in await told(thread)
    assert "There is no tool 'connect_db'" in results(thread)[0][1]
