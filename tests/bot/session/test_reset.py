"""A reset ends a session for good, and tells readers that what was asked needs no answer any more."""

from __future__ import annotations

from bot.session_api import ControlStatus
from bot.sessions import Sessions
from durable_core.streams import Streams
from tests.bot.session.kit import ALICE, Thread
from tests.bot.session.test_approvals import ask


async def test_a_reset_withdraws_what_was_asked_before_the_turn_and_the_session_end(thread: Thread) -> None:
    await ask(thread)
    await thread.work()
    prompt = await thread.prompt()
    streams = Streams(thread.store)
    sessions = Sessions(
        store=thread.store, streams=streams, prompts=thread.prompts, agents=["support"], deployment="d", lifetime_ms=None
    )
    assert await sessions.reset(ALICE, thread.run_id, reason=None, key=None) is ControlStatus.RESET
    assert await sessions.reset(ALICE, thread.run_id, reason=None, key=None) is ControlStatus.NO_ACTIVE_SESSION
    ended = [(event.type, event.data) for event in await streams.read(thread.run_id)][-3:]
    assert [kind for kind, _ in ended] == ["input.resolved", "turn.cancelled", "session.completed"]
    (resolution,) = ended[0][1]["resolutions"]
    assert (resolution["request_id"], resolution["outcome"]) == (prompt.prompt_id, "cancelled")
    await thread.work()
    thread.run_id = ""  # it ended by SQL alone, in the middle of a call: there is no whole history to check
