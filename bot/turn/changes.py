"""What each action changes, built as values before any SQL.

What lives here: pure builders, one an action. What does not: the values' shape (change.py), the commit (bot/session/commits.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pydantic import JsonValue

from bot.history import AssistantItem, Call, Item, NoteItem, ResultItem, ResultStatus, Trust, UserItem
from bot.model import Finish, ModelReply
from bot.turn.change import Begun, Change, Draft, Ended, NewPrompt, Post
from bot.turn.decide import Closed, Dismiss, Fail, Open, Refuse, Resolve, Stop
from bot.turn.state import Cancel, Message, Pending, Purpose, Stage, State, Turn
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
        items=(*notes, *(_user(message) for message in action.messages)),
        link_turn=turn.turn_id,
        events=(*events, *(_received(state, turn, message) for message in action.messages)),
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
    refused: Collection[str] = (),
) -> Change:
    """Finish a model call, with the results of the calls that ran and prompts for those that wait.

    ``refused`` names the calls whose result no record tells of: they never began.
    """
    held = tuple(_pending(prompt) for prompt in prompts)
    here: dict[str, JsonValue] = {"turn_id": turn.turn_id, "step_index": turn.step_index, "sequence": state.sequence}
    events: list[Draft] = []
    if reply.text:
        finish: dict[str, JsonValue] = {**here, "finish_reason": FINISH_WORDS[reply.finish]}
        events.append(Draft(type="message.completed", data=finish, refs=(("message", f"step:{n}#/items/0/text"),)))
    events += [_action_result(here, item) for item in results if item.call_id in refused]
    events += _requests(turn, prompts)
    usage: dict[str, JsonValue] = {"input_tokens": reply.usage.input_tokens, "output_tokens": reply.usage.output_tokens}
    events.append(Draft(type="step.completed", data={**here, "finish_reason": FINISH_WORDS[reply.finish], "usage": usage}))
    after = replace(
        state,
        sequence=state.sequence + 1,
        input_tokens=state.input_tokens + reply.usage.input_tokens,
        turn=replace(turn, step_index=turn.step_index + 1, model_calls=turn.model_calls + 1, pending=held),
    )
    items: tuple[Item, ...] = (AssistantItem(reply.text, tuple(calls), model=reply.model, usage=reply.usage), *results)
    if calls:
        text = (_reply_post(n),) if held and reply.text else ()
        return Change(
            kind="model",
            state=after,
            items=items,
            events=(*events, _turn_waiting(turn)) if held else tuple(events),
            posts=(*text, *_cards(prompts)),
            prompts=tuple(prompts),
        )
    events += [Draft(type="turn.completed", data={"turn_id": turn.turn_id, "sequence": state.sequence}), _waiting_for_user()]
    return Change(
        kind="model",
        state=replace(after, turn=None),
        items=items,
        link_turn=turn.turn_id,
        events=tuple(events),
        posts=(_reply_post(n),) if reply.text else (),
        outcomes=tuple(
            Ended(submission_id=submission, outcome=Outcome.COMPLETED, replied=True) for submission in turn.submissions
        ),
    )


def resolved(
    state: State,
    turn: Turn,
    action: Resolve,
    *,
    results: Mapping[str, ResultItem],
    again: Sequence[NewPrompt] = (),
    begun: Begun | None = None,
    refused: Collection[str] = (),
) -> Change:
    """Finish what was released or closed, and take in what steers; the turn goes on, or waits for the rest.

    ``refused`` as in ``thought``.
    """
    gone = {pending.call.call_id for pending in action.run} | {closed.pending.call.call_id for closed in action.closed}
    rest = tuple(pending for pending in turn.pending if pending.call.call_id not in gone)
    here: dict[str, JsonValue] = {"turn_id": turn.turn_id, "step_index": turn.step_index, "sequence": state.sequence}
    ran = tuple(results[pending.call.call_id] for pending in action.run if pending.call.call_id in results)
    shut = tuple(_closed_item(closed) for closed in action.closed)
    events = [_input_resolved(turn, prompt_id, outcome) for prompt_id, outcome in action.settle]
    events += [_action_result(here, item) for item in (*ran, *shut) if item in shut or item.call_id in refused]
    announced = bool(action.run) or (begun is not None and begun.announced)
    events += _requests(turn, again)
    if announced:
        events.append(Draft(type="step.completed", data={**here, "finish_reason": "tool-calls" if action.run else "other"}))
    events += [_received(state, turn, message) for message in action.steer]
    after = replace(
        turn,
        pending=(*rest, *(_pending(prompt) for prompt in again)),
        step_index=turn.step_index + (1 if announced else 0),
        submissions=(*turn.submissions, *(message.submission_id for message in action.steer)),
    )
    if after.pending:
        events.append(_turn_waiting(turn))
    return Change(
        kind="tools" if action.run else "resolve",
        state=replace(state, turn=after, messages=state.messages + len(action.steer)),
        items=(*ran, *shut, *(_user(message) for message in action.steer)),
        link_turn=turn.turn_id,
        events=tuple(events),
        posts=(*_results_on_cards(action.run, results), *_cards(again)),
        prompts=tuple(again),
        settle=action.settle,
        consumed=(*(entry.seq for entry in action.consumed), *(message.seq for message in action.steer)),
    )


def stopped(state: State, turn: Turn, action: Stop, begun: Begun) -> Change:
    """Cancel the turn; every open call is answered as cancelled, so that the history stays whole."""
    items = _abandoned(turn, begun, ResultStatus.CANCELLED, "The turn was cancelled before this call ran.")
    settle = tuple((prompt_id, PromptOutcome.CANCELLED) for prompt_id in action.settle)
    here: dict[str, JsonValue] = {"turn_id": turn.turn_id, "sequence": state.sequence}
    events = [_input_resolved(turn, prompt_id, outcome) for prompt_id, outcome in settle]
    events += _unrun(turn, begun, items)
    events += [Draft(type="turn.cancelled", data=here), _waiting_for_user()]
    detail: dict[str, JsonValue] = {"code": "cancelled", "message": "The turn was cancelled."}
    aborted = tuple(Ended(submission_id=one, outcome=Outcome.ABORTED, detail=detail) for one in turn.submissions)
    accepted = Ended(submission_id=action.cancel.submission_id, outcome=Outcome.COMPLETED, detail={"status": "accepted"})
    return Change(
        kind="cancel",
        state=replace(state, turn=None),
        items=items,
        link_turn=turn.turn_id,
        events=tuple(events),
        posts=(_notice("Stopped."),),
        settle=settle,
        consumed=(action.cancel.seq,),
        outcomes=(*aborted, accepted),
    )


def failed(state: State, turn: Turn, action: Fail, begun: Begun, *, error_id: str) -> Change:
    """End the turn as failed; the session goes on with the next message."""
    items: tuple[Item, ...] = _abandoned(turn, begun, ResultStatus.CANCELLED, "The turn failed before this call ran.")
    note = NoteItem("The turn before ended with an error and gave no answer.", "framework", trust=Trust.SYSTEM)
    settle = tuple((prompt_id, PromptOutcome.CANCELLED) for prompt_id in action.settle)
    here: dict[str, JsonValue] = {"turn_id": turn.turn_id, "step_index": turn.step_index, "sequence": state.sequence}
    error: dict[str, JsonValue] = {"code": action.code, "message": action.message, "error_id": error_id}
    events = [_input_resolved(turn, prompt_id, outcome) for prompt_id, outcome in settle]
    events += _unrun(turn, begun, items)
    events += [
        Draft(type="step.failed", data={**here, **error}),
        Draft(type="turn.failed", data={"turn_id": turn.turn_id, "sequence": state.sequence, **error, "terminal": False}),
        _waiting_for_user(),
    ]
    text = f"I hit an error and could not finish this. You can send your message again. (error {error_id})"
    return Change(
        kind="fail",
        state=replace(state, turn=None),
        items=(*items, note),
        link_turn=turn.turn_id,
        events=tuple(events),
        posts=(_notice(text),),
        settle=settle,
        outcomes=tuple(Ended(submission_id=one, outcome=Outcome.FAILED, detail=error) for one in turn.submissions),
    )


def refused(state: State, action: Refuse) -> Change:
    """Turn away messages of people who may not speak here, telling each privately."""
    posts = []
    for message in action.messages:
        body: dict[str, JsonValue] = {"kind": "notice", "text": message.denied or "", "private_to": message.body.author.id}
        if message.body.channel is not None and not message.body.author.anonymous:
            posts.append(Post(body=body, channel=message.body.channel, address=message.body.address))
    return Change(
        kind="refuse",
        state=state,
        link_turn="",
        events=tuple(
            Draft(type="message.refused", data={"submission_id": message.submission_id}, visible=False)
            for message in action.messages
        ),
        posts=tuple(posts),
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
            if isinstance(entry, Cancel)
        ),
    )


def ended(state: State, reason: str) -> Change:
    """End the session."""
    return Change(kind="end", state=state, events=(Draft(type="session.completed", data={"reason": reason}),), end=reason)


# ── parts ────────────────────────────────────────────────────────────────────────────────────────


def _user(message: Message) -> UserItem:
    body = message.body
    return UserItem(
        body.text,
        body.author.name,
        principal=body.author.id,
        origin=body.channel or body.place.kind,
        trust=Trust.REQUESTER,
        at=message.at,
    )


def _received(state: State, turn: Turn, message: Message) -> Draft:
    author: dict[str, JsonValue] = {"id": message.body.author.id, "name": message.body.author.name}
    data: dict[str, JsonValue] = {
        "turn_id": turn.turn_id,
        "sequence": state.sequence,
        "submission_id": message.submission_id,
        "author": author,
    }
    return Draft(type="message.received", data=data, refs=(("message", f"command:{message.seq}#/text"),))


def _pending(prompt: NewPrompt) -> Pending:
    return Pending(
        call=prompt.call,
        purpose=prompt.purpose,
        stage=Stage.ASKED,
        prompt_id=prompt.prompt_id,
        delivery_id=prompt.delivery_id,
        begun=prompt.begun,
        binding=prompt.binding,
    )


def _requests(turn: Turn, prompts: Sequence[NewPrompt]) -> list[Draft]:
    return [
        Draft(
            type="input.requested",
            data={"turn_id": turn.turn_id, "call_id": prompt.call.call_id},
            refs=(("requests/0", f"prompt:{prompt.prompt_id}#"),),
        )
        for prompt in prompts
    ]


def _cards(prompts: Sequence[NewPrompt]) -> tuple[Post, ...]:
    return tuple(
        Post(body={"kind": "card"}, delivery_id=prompt.delivery_id, prompt_id=prompt.prompt_id)
        for prompt in prompts
        if prompt.delivery_id is not None
    )


def _results_on_cards(run: Sequence[Pending], results: Mapping[str, ResultItem]) -> tuple[Post, ...]:
    posts = []
    for pending in run:
        result = results.get(pending.call.call_id)
        if pending.delivery_id is not None and result is not None:
            body: dict[str, JsonValue] = {"kind": "card", "result": _short(result), "status": result.status.value}
            posts.append(Post(body=body, prompt_id=pending.prompt_id, edit_of=pending.delivery_id))
    return tuple(posts)


def _short(result: ResultItem, most: int = 200) -> str:
    text = result.content if isinstance(result.content, str) else ""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _closed_item(closed: Closed) -> ResultItem:
    call = closed.pending.call
    return ResultItem(
        call.call_id, call.tool, status=closed.status, content=closed.reason, origin="framework", trust=Trust.SYSTEM
    )


def _action_result(here: Mapping[str, JsonValue], item: ResultItem) -> Draft:
    data: dict[str, JsonValue] = {**here, "call_id": item.call_id, "tool": item.tool, "status": item.status.value}
    return Draft(type="action.result", data={**data, "result": item.content})


def _input_resolved(turn: Turn, prompt_id: str, outcome: PromptOutcome) -> Draft:
    kinds = {pending.prompt_id: pending.purpose.value for pending in turn.pending}
    resolution: dict[str, JsonValue] = {
        "request_id": prompt_id,
        "kind": kinds.get(prompt_id, Purpose.APPROVAL.value),
        "outcome": outcome.value,
    }
    return Draft(type="input.resolved", data={"turn_id": turn.turn_id, "resolutions": [resolution]})


def _turn_waiting(turn: Turn) -> Draft:
    return Draft(type="turn.waiting", data={"turn_id": turn.turn_id, "on": "input"})


def _waiting_for_user() -> Draft:
    return Draft(type="session.waiting", data={"wait": "next-user-message"})


def _reply_post(n: int) -> Post:
    return Post(body={"kind": "reply", "step": n})


def _notice(text: str) -> Post:
    return Post(body={"kind": "notice", "text": text})


def _unrun(turn: Turn, begun: Begun, items: Sequence[Item]) -> list[Draft]:
    """Tell readers how the calls ended that have no result of their own."""
    here: dict[str, JsonValue] = {"turn_id": turn.turn_id, "step_index": turn.step_index}
    return [_action_result(here, item) for item in items if isinstance(item, ResultItem) and item.call_id not in begun.results]


def _abandoned(turn: Turn, begun: Begun, status: ResultStatus, reason: str) -> tuple[Item, ...]:
    """Give every open call its one result: what it had, unknown if it was running, else ``status``."""
    items: list[Item] = []
    calls = begun.calls or tuple(pending.call for pending in turn.pending)
    if begun.reply is not None and begun.calls:
        items.append(AssistantItem(begun.reply.text, begun.calls, model=begun.reply.model, usage=begun.reply.usage))
    for call in calls:
        result = begun.results.get(call.call_id)
        if result is None and call.call_id in begun.started:
            text = "It was stopped while it ran. Whether it took effect is not known."
            result = ResultItem(
                call.call_id, call.tool, status=ResultStatus.UNKNOWN, content=text, origin="framework", trust=Trust.SYSTEM
            )
        if result is None:
            result = ResultItem(call.call_id, call.tool, status=status, content=reason, origin="framework", trust=Trust.SYSTEM)
        items.append(result)
    return tuple(items)
