"""What each action changes, built as values before any SQL.

What lives here: pure builders, one an action. What does not: the values' shape (change.py), waiting (waits.py), posts (posts.py),
the commit (bot/session/commits.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pydantic import JsonValue

from bot.history import AssistantItem, Call, Item, NoteItem, ResultItem, ResultStatus, Trust
from bot.model import Finish, ModelReply
from bot.turn import posts, signing
from bot.turn.actions import Closed, Dismiss, Fail, Open, Raised, Refuse, Resolve, Stop
from bot.turn.change import NO_FLOWS, Begun, Change, Draft, Ended, Flows, NewPrompt, Post
from bot.turn.children import tasks_settled, tasks_started, tasks_stopped
from bot.turn.held import MODEL_CALLS, waiting_after
from bot.turn.parts import (
    abandoned,
    action_result,
    asked,
    closed_item,
    message_received,
    requests,
    requests_resolved,
    turn_waiting,
    unrun,
    user_item,
    waiting_for_user,
)
from bot.turn.state import NO_CALL, Cancel, FromChild, Pending, State, Turn, Undelivered
from durable_core.model import Outcome, PromptOutcome

FINISH_WORDS: dict[Finish, str] = {
    Finish.STOP: "stop",
    Finish.TOOLS: "tool-calls",
    Finish.LENGTH: "length",
    Finish.OTHER: "other",
}


def opened(state: State, action: Open, *, predecessor: str | None = None, notes: Sequence[NoteItem] = ()) -> Change:
    """Start a turn. The first of a session says which one it follows, and may begin with notes of that."""
    first = action.messages[0].body
    turn = Turn(
        number=state.turns,
        requester=first.author,
        place=first.place,
        channel=first.channel,
        address=first.address,
        submissions=tuple(message.submission_id for message in action.messages),
    )
    follows: dict[str, JsonValue] = {} if predecessor is None else {"predecessor": predecessor}
    events = [] if state.turns else [Draft(type="session.started", data=follows)]
    events.append(Draft(type="turn.started", data={"turn_id": turn.turn_id, "sequence": state.sequence}))
    return Change(
        kind="open",
        state=replace(state, turns=state.turns + 1, messages=state.messages + len(action.messages), turn=turn),
        items=(*notes, *(user_item(message) for message in action.messages)),
        link_turn=turn.turn_id,
        events=(*events, *(message_received(state, turn, message) for message in action.messages)),
        consumed=tuple(message.seq for message in action.messages),
        participants=(first.author.id,) if first.author.id else (),
    )


def thought(
    state: State,
    turn: Turn,
    reply: ModelReply,
    *,
    n: int,
    calls: Sequence[Call],
    results: Sequence[ResultItem],
    prompts: Sequence[NewPrompt],
    asleep: Sequence[Pending] = (),
    joined: Sequence[Pending] = (),
    flows: Flows = NO_FLOWS,
    refused: Collection[str] = (),
    silent: bool = False,
    private: Mapping[str, JsonValue] | None = None,
) -> Change:
    """Finish a model call, with the results of the calls that ran, prompts for those that wait, those that sleep or start a run.

    ``joined`` are calls that wait for what was asked on behalf of another.
    ``refused`` names the calls whose result no record tells of: they never began. ``silent`` ends the turn without a message.
    ``private`` marks a text that is not said aloud, where it may be made of what only one person may read.
    """
    held = (*(asked(prompt) for prompt in prompts), *joined, *asleep, *flows.pending)
    here: dict[str, JsonValue] = {"turn_id": turn.turn_id, "step_index": turn.step_index, "sequence": state.sequence}
    events: list[Draft] = []
    if reply.text:
        aloud = bool(held) if calls and (held or not silent) else not silent
        unheard = private if private is not None and not aloud else {}
        finish: dict[str, JsonValue] = {**here, "finish_reason": FINISH_WORDS[reply.finish], **unheard}
        events.append(Draft(type="message.completed", data=finish, refs=(("message", f"step:{n}#/items/0/text"),)))
    events += [action_result(here, item) for item in results if item.call_id in refused]
    events += tasks_started(turn, flows.pending)
    events += requests(turn, prompts, joined)
    usage: dict[str, JsonValue] = {"input_tokens": reply.usage.input_tokens, "output_tokens": reply.usage.output_tokens}
    events.append(Draft(type="step.completed", data={**here, "finish_reason": FINISH_WORDS[reply.finish], "usage": usage}))
    after = replace(
        state,
        sequence=state.sequence + 1,
        input_tokens=state.input_tokens + reply.usage.input_tokens,
        turn=replace(turn, step_index=turn.step_index + 1, model_calls=turn.model_calls + 1, pending=held),
    )
    items: tuple[Item, ...] = (AssistantItem(reply.text, tuple(calls), model=reply.model, usage=reply.usage), *results)
    if calls and (held or not silent):
        text = (_reply_post(n),) if held and reply.text else ()
        return Change(
            kind="model",
            state=after,
            items=items,
            events=(*events, turn_waiting(turn, held)) if held else tuple(events),
            posts=(*text, *posts.cards(turn, prompts)),
            prompts=tuple(prompts),
            starts=flows.starts,
        )
    events += [Draft(type="turn.completed", data={"turn_id": turn.turn_id, "sequence": state.sequence}), waiting_for_user()]
    return Change(
        kind="model",
        state=replace(after, turn=None),
        items=items,
        link_turn=turn.turn_id,
        events=tuple(events),
        posts=(_reply_post(n),) if reply.text and not silent else (),
        outcomes=tuple(
            Ended(submission_id=submission, outcome=Outcome.COMPLETED, replied=not silent) for submission in turn.submissions
        ),
    )


def resolved(
    state: State,
    turn: Turn,
    action: Resolve,
    *,
    results: Mapping[str, ResultItem],
    again: Sequence[NewPrompt] = (),
    joined: Sequence[Pending] = (),
    flows: Flows = NO_FLOWS,
    begun: Begun | None = None,
    refused: Collection[str] = (),
) -> Change:
    """Finish what was released or closed, and take in what steers; the turn goes on, or waits for the rest.

    ``joined`` and ``refused`` as in ``thought``.
    """
    rest = waiting_after(turn, action)
    here: dict[str, JsonValue] = {"turn_id": turn.turn_id, "step_index": turn.step_index, "sequence": state.sequence}
    ran = tuple(results[pending.call.call_id] for pending in action.run if pending.call.call_id in results)
    shut = tuple(closed_item(closed) for closed in _with_call(action.closed))
    events = [*signing.undeliverable(turn, action), *requests_resolved(turn, action.settle)]
    events += tasks_started(turn, flows.pending)
    events += tasks_settled(turn, action.closed)
    events += [
        action_result(here, item, owner=turn.requester.name) for item in (*ran, *shut) if item in shut or item.call_id in refused
    ]
    announced = bool(action.run) or (begun is not None and begun.announced)
    events += requests(turn, again, joined)
    if announced:
        events.append(Draft(type="step.completed", data={**here, "finish_reason": "tool-calls" if action.run else "other"}))
    events += [message_received(state, turn, message) for message in action.steer]
    pending = (*rest, *(asked(prompt) for prompt in again), *joined, *flows.pending)
    done = {item.call_id: item for item, closed in zip(shut, _with_call(action.closed), strict=True) if closed.pending.child}
    on_cards = {**results, **done}
    known = posts.card_results(turn, (*action.run, *(closed.pending for closed in action.closed)), on_cards)
    groups = {posts.on_cards(one).group for one in pending}
    after = replace(
        turn,
        pending=pending,
        step_index=turn.step_index + (1 if announced else 0),
        submissions=(*turn.submissions, *(message.submission_id for message in action.steer)),
        card_results=tuple(one for one in known if one.group in groups),
    )
    if pending:
        events.append(turn_waiting(turn, pending))
    raised = _raised(replace(state, turn=after, messages=state.messages + len(action.steer)), action.raised)
    heard: tuple[FromChild | Undelivered, ...] = (*action.ended, *action.undelivered)
    touched = (*action.run, *(closed.pending for closed in action.closed))
    return Change(
        kind="tools" if action.run else "resolve",
        state=raised,
        items=(*ran, *shut, *(user_item(message) for message in action.steer)),
        link_turn=turn.turn_id,
        events=tuple(events),
        posts=(*posts.results_on_cards(touched, on_cards, known), *posts.cards(turn, again)),
        prompts=tuple(again),
        settle=action.settle,
        consumed=(
            *(entry.seq for entry in action.consumed),
            *(entry.seq for entry in heard),
            *(message.seq for message in action.steer),
        ),
        outcomes=tuple(Ended(submission_id=entry.submission_id, outcome=Outcome.COMPLETED) for entry in heard),
        starts=flows.starts,
    )


def _with_call(closed: Sequence[Closed]) -> tuple[Closed, ...]:
    """Those that end a call: a limit that somebody let a turn pass is none."""
    return tuple(one for one in closed if one.pending.call != NO_CALL)


def _raised(state: State, raised: Raised | None) -> State:
    """Move the limit that somebody let a turn pass."""
    if raised is None or state.turn is None:
        return state
    if raised.code == MODEL_CALLS:
        return replace(state, turn=replace(state.turn, extra_calls=state.turn.extra_calls + raised.amount))
    return replace(state, extra_tokens=state.extra_tokens + raised.amount)


def stopped(state: State, turn: Turn, action: Stop, begun: Begun) -> Change:
    """Cancel the turn; every open call is answered as cancelled, so that the history stays whole."""
    items = abandoned(turn, begun, ResultStatus.CANCELLED, "The turn was cancelled before this call ran.")
    expired = tuple((prompt_id, PromptOutcome.EXPIRED) for prompt_id in action.expired)
    settle = (*expired, *((prompt_id, PromptOutcome.CANCELLED) for prompt_id in action.settle))
    here: dict[str, JsonValue] = {"turn_id": turn.turn_id, "sequence": state.sequence}
    events = requests_resolved(turn, settle)
    events += tasks_stopped(turn)
    events += unrun(turn, begun, items)
    events += [Draft(type="turn.cancelled", data=here), waiting_for_user()]
    detail: dict[str, JsonValue] = {"code": action.code, "message": action.words}
    aborted = tuple(Ended(submission_id=one, outcome=Outcome.ABORTED, detail=detail) for one in turn.submissions)
    consumed = tuple(entry.seq for entry in action.consumed)
    cancels = _children(turn)
    known = posts.results_on_cards(turn.pending, {}, turn.card_results)
    cancel = action.cancel
    if cancel is None:
        return Change(
            kind="cancel",
            state=replace(state, turn=None),
            items=items,
            link_turn=turn.turn_id,
            events=tuple(events),
            posts=(*known, posts.notice(f"Stopped. {action.words}")),
            settle=settle,
            consumed=consumed,
            outcomes=aborted,
            cancels=cancels,
        )
    accepted = Ended(submission_id=cancel.submission_id, outcome=Outcome.COMPLETED, detail={"status": "accepted"})
    return Change(
        kind="cancel",
        state=replace(state, turn=None),
        items=items,
        link_turn=turn.turn_id,
        events=tuple(events),
        posts=(*known, posts.notice("Stopped.")),
        settle=settle,
        consumed=(*consumed, cancel.seq),
        outcomes=(*aborted, accepted),
        cancels=cancels,
    )


def failed(state: State, turn: Turn, action: Fail, begun: Begun, *, error_id: str) -> Change:
    """End the turn as failed; the session goes on with the next message."""
    items: tuple[Item, ...] = abandoned(turn, begun, ResultStatus.CANCELLED, "The turn failed before this call ran.")
    note = NoteItem("The turn before ended with an error and gave no answer.", "framework", trust=Trust.SYSTEM)
    settle = tuple((prompt_id, PromptOutcome.CANCELLED) for prompt_id in action.settle)
    here: dict[str, JsonValue] = {"turn_id": turn.turn_id, "step_index": turn.step_index, "sequence": state.sequence}
    error: dict[str, JsonValue] = {"code": action.code, "message": action.message, "error_id": error_id}
    events = requests_resolved(turn, settle)
    events += tasks_stopped(turn)
    events += unrun(turn, begun, items)
    events += [
        Draft(type="step.failed", data={**here, **error}),
        Draft(type="turn.failed", data={"turn_id": turn.turn_id, "sequence": state.sequence, **error, "terminal": False}),
        waiting_for_user(),
    ]
    text = f"I hit an error and could not finish this. You can send your message again. (error {error_id})"
    return Change(
        kind="fail",
        state=replace(state, turn=None),
        items=(*items, note),
        link_turn=turn.turn_id,
        events=tuple(events),
        posts=(*posts.results_on_cards(turn.pending, {}, turn.card_results), posts.notice(text)),
        settle=settle,
        outcomes=tuple(Ended(submission_id=one, outcome=Outcome.FAILED, detail=error) for one in turn.submissions),
        cancels=_children(turn),
    )


def _children(turn: Turn) -> tuple[str, ...]:
    return tuple(pending.child for pending in turn.at_work if pending.child is not None)


def refused(state: State, action: Refuse) -> Change:
    """Turn away messages of people who may not speak here, telling each privately."""
    told = [
        posts.whisper(message.body.channel, message.body.address, message.body.author.id, message.denied or "")
        for message in action.messages
        if message.body.channel is not None and not message.body.author.anonymous
    ]
    return Change(
        kind="refuse",
        state=state,
        link_turn="",
        events=tuple(
            Draft(type="message.refused", data={"submission_id": message.submission_id}, visible=False)
            for message in action.messages
        ),
        posts=tuple(told),
        consumed=tuple(message.seq for message in action.messages),
        outcomes=tuple(
            Ended(
                submission_id=message.submission_id,
                outcome=Outcome.FAILED,
                detail={"code": "not_allowed", "message": message.denied or ""},
            )
            for message in action.messages
        ),
    )


def dismissed(state: State, action: Dismiss) -> Change:
    """Take out of the inbox what is about nothing any more."""
    nothing: dict[str, JsonValue] = {"status": "no_active_turn"}
    return Change(
        kind="dismiss",
        state=state,
        link_turn="",
        consumed=tuple(entry.seq for entry in action.inputs),
        outcomes=tuple(
            Ended(submission_id=entry.submission_id, outcome=Outcome.COMPLETED, detail=nothing)
            for entry in action.inputs
            if isinstance(entry, Cancel | Undelivered | FromChild)
        ),
    )


def ended(state: State, reason: str) -> Change:
    """End the session."""
    return Change(kind="end", state=state, events=(Draft(type="session.completed", data={"reason": reason}),), end=reason)


def _reply_post(n: int) -> Post:
    return Post(body={"kind": "reply", "step": n})
