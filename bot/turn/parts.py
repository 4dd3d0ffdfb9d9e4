"""What several changes have in common: history items, events, and the calls of a turn that ends.

What lives here: small pure builders. What does not: what an action changes (changes.py, waits.py), posts (posts.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from bot.history import AssistantItem, Item, ResultItem, ResultStatus, Trust, UserItem
from bot.turn import signing
from bot.turn.actions import FRAMEWORK, Closed
from bot.turn.change import Begun, Draft, NewPrompt
from bot.turn.children import STOPPED
from bot.turn.posts import copies_of
from bot.turn.state import NO_CALL, Message, Pending, Purpose, Stage, State, Turn
from durable_core.model import PromptOutcome


def user_item(message: Message) -> UserItem:
    """A person's words as the model reads them."""
    body = message.body
    return UserItem(
        body.text,
        body.author.name,
        principal=body.author.id,
        origin=body.channel or body.place.kind,
        trust=Trust.REQUESTER,
        at=message.at,
    )


def message_received(state: State, turn: Turn, message: Message, *, answers: str | None = None) -> Draft:
    """Tell readers of a message; ``answers`` names the prompt that it was taken for an answer to."""
    author: dict[str, JsonValue] = {"id": message.body.author.id, "name": message.body.author.name}
    data: dict[str, JsonValue] = {
        "turn_id": turn.turn_id,
        "sequence": state.sequence,
        "submission_id": message.submission_id,
        "author": author,
    }
    if answers is not None:
        data["answers"] = answers
    return Draft(type="message.received", data=data, refs=(("message", f"command:{message.seq}#/text"),))


def asked(prompt: NewPrompt) -> Pending:
    """A turn waits for the answer to a prompt."""
    return Pending(
        call=prompt.call,
        purpose=prompt.purpose,
        stage=Stage.ASKED,
        prompt_id=prompt.prompt_id,
        begun=prompt.begun,
        binding=prompt.binding,
        means=prompt.means,
        copies=copies_of(prompt),
        group=prompt.group,
        limit=prompt.limit,
        connection=prompt.connection,
        scopes=prompt.scopes,
        signed_in=prompt.signed_in,
        consent=prompt.consent,
        earlier=prompt.earlier,
    )


def requests(turn: Turn, prompts: Sequence[NewPrompt], joined: Sequence[Pending] = ()) -> list[Draft]:
    """Tell readers what is asked."""
    told = []
    for prompt in prompts:
        about: dict[str, JsonValue] = {"call_id": prompt.call.call_id} if prompt.call != NO_CALL else {}
        refs = (("requests/0", f"prompt:{prompt.prompt_id}#"),)
        told.append(Draft(type="input.requested", data={"turn_id": turn.turn_id, **about}, refs=refs))
        if prompt.purpose is Purpose.SIGN_IN:
            told.append(signing.required(turn, prompt, joined))
    return told


def closed_item(closed: Closed) -> ResultItem:
    """The result of a call whose body does not run."""
    call = closed.pending.call
    trust = Trust.SYSTEM if closed.origin == FRAMEWORK else Trust.TOOL
    return ResultItem(
        call.call_id,
        call.tool,
        status=closed.status,
        content=closed.content,
        origin=closed.origin,
        trust=trust,
        private_to=closed.pending.private_to,
    )


def action_result(here: Mapping[str, JsonValue], item: ResultItem, *, owner: str = "") -> Draft:
    """Tell readers how a call ended that has no record of its own; ``owner`` is the name of whoever it is private to."""
    data: dict[str, JsonValue] = {**here, "call_id": item.call_id, "tool": item.tool, "status": item.status.value}
    if item.private_to is not None:
        data["private_to"] = {"id": item.private_to, "name": owner}
    return Draft(type="action.result", data={**data, "result": item.content})


def requests_resolved(turn: Turn, settled: Sequence[tuple[str, PromptOutcome]]) -> list[Draft]:
    """Tell readers how requests ended that nobody answered."""
    told: list[Draft] = []
    for prompt_id, outcome in settled:
        signed_in = signing.completed(turn, prompt_id, outcome)
        told += [signed_in] if signed_in is not None else []
        told.append(_resolved(turn, prompt_id, outcome))
    return told


def _resolved(turn: Turn, prompt_id: str, outcome: PromptOutcome) -> Draft:
    kinds = {pending.prompt_id: pending.purpose.value for pending in turn.pending}
    resolution: dict[str, JsonValue] = {
        "request_id": prompt_id,
        "kind": kinds.get(prompt_id, Purpose.APPROVAL.value),
        "outcome": outcome.value,
    }
    return Draft(type="input.resolved", data={"turn_id": turn.turn_id, "resolutions": [resolution]})


def turn_waiting(turn: Turn, pending: Sequence[Pending]) -> Draft:
    """Tell readers for what a turn waits: a person as long as one is asked, else a run that works for it, else a time."""
    stages = {one.stage for one in pending}
    on = "input" if Stage.ASKED in stages else "task" if Stage.AT_WORK in stages else "time"
    return Draft(type="turn.waiting", data={"turn_id": turn.turn_id, "on": on})


def waiting_for_user() -> Draft:
    """Tell readers that the session takes the next message."""
    return Draft(type="session.waiting", data={"wait": "next-user-message"})


def unrun(turn: Turn, begun: Begun, items: Sequence[Item]) -> list[Draft]:
    """Tell readers how the calls ended that have no result of their own."""
    here: dict[str, JsonValue] = {"turn_id": turn.turn_id, "step_index": turn.step_index}
    return [action_result(here, item) for item in items if isinstance(item, ResultItem) and item.call_id not in begun.results]


def abandoned(turn: Turn, begun: Begun, status: ResultStatus, reason: str) -> tuple[Item, ...]:
    """Give every open call its one result: what it had, unknown if it was running, else ``status``."""
    items: list[Item] = []
    calls = begun.calls or turn.open_calls
    if begun.reply is not None and begun.calls:
        items.append(AssistantItem(begun.reply.text, begun.calls, model=begun.reply.model, usage=begun.reply.usage))
    at_work = {pending.call.call_id for pending in turn.at_work}
    for call in calls:
        result = begun.results.get(call.call_id)
        if result is None and call.call_id in at_work:
            result = ResultItem(
                call.call_id, call.tool, status=ResultStatus.CANCELLED, content=STOPPED, origin=FRAMEWORK, trust=Trust.SYSTEM
            )
        if result is None and call.call_id in begun.started:
            text = "It was stopped while it ran. Whether it took effect is not known."
            result = ResultItem(
                call.call_id, call.tool, status=ResultStatus.UNKNOWN, content=text, origin="framework", trust=Trust.SYSTEM
            )
        if result is None:
            result = ResultItem(call.call_id, call.tool, status=status, content=reason, origin="framework", trust=Trust.SYSTEM)
        items.append(result)
    return tuple(items)
