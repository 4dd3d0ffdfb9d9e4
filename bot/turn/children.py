"""Runs that work for calls: what is heard of them, how their ends close calls, and telling them to stop.

What lives here: rules and builders, pure. What does not: starting a run (bot/flows/begin.py), the run itself (durable_core).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic import JsonValue

from bot.history import ResultStatus
from bot.tools import completed
from bot.turn import posts, signing
from bot.turn.actions import Closed, Interrupt, Relay
from bot.turn.change import Change, Draft, Ended
from bot.turn.state import ChildRequest, FromChild, Message, Pending, Purpose, Stage, State, Turn
from bot.turn.view import View
from durable_core.model import Outcome, PromptOutcome

ENDED: Final = "child"
STOP_MS: Final = 60_000
"""How long the end of a run is waited for that was told to stop: it has half of that to clean up."""
STOPPED: Final = "The workflow was told to stop. What it had done by then stays done."
UNHEARD: Final = "The workflow was told to stop, and has not said that it did. Whether it took effect is not known."


def begun(pending: Pending, run_id: str) -> Pending:
    """A call whose run is started with this step."""
    return replace(pending, stage=Stage.AT_WORK, purpose=Purpose.WORKFLOW, child=run_id)


def words_of(view: View, turn: Turn) -> tuple[FromChild, ...]:
    """What runs of this turn said, but for their ends."""
    known = (entry for entry in view.inbox if isinstance(entry, FromChild) and entry.kind != ENDED)
    return tuple(entry for entry in known if not is_stale(turn, entry))


def is_stale(turn: Turn | None, entry: FromChild) -> bool:
    """Whether nobody waits any more for what a run says: for words its call counts, for an end the run."""
    at_work = turn.at_work if turn is not None else ()
    if entry.kind == ENDED:
        return all(pending.child != entry.run_id for pending in at_work)
    return all(pending.call.call_id != entry.call_id for pending in at_work)


def ends_of(view: View) -> dict[str, FromChild]:
    """The ends of runs, by their ids; of two the first counts."""
    ends: dict[str, FromChild] = {}
    for entry in view.inbox:
        if isinstance(entry, FromChild) and entry.kind == ENDED:
            ends.setdefault(entry.run_id, entry)
    return ends


def closed_by(pending: Pending, end: FromChild) -> Closed:
    """Close a call with what its run came to."""
    origin = f"tool:{pending.call.tool}"
    if end.told.get("ok"):
        content = completed(pending.call.tool, end.told.get("value")).content
        return Closed(pending=pending, status=ResultStatus.COMPLETED, content=content, origin=origin)
    told = end.told.get("error")
    error: Mapping[str, Any] = told if isinstance(told, Mapping) else {}
    words = str(error.get("message") or "it failed")
    if error.get("code") == "cancelled":
        content = STOPPED if pending.stopping else f"The workflow was stopped: {words}"
        return Closed(pending=pending, status=ResultStatus.CANCELLED, content=content, origin=origin)
    name = str(error.get("type") or "")
    return Closed(pending=pending, status=ResultStatus.FAILED, content=f"{name}: {words}" if name else words, origin=origin)


def unheard(pending: Pending) -> Closed:
    """Close a call whose run was told to stop, and of which nothing was heard since then."""
    return Closed(pending=pending, status=ResultStatus.UNKNOWN, content=UNHEARD)


def interrupt(turn: Turn, message: Message) -> Interrupt | None:
    """Stop the runs of a turn whose person wrote on; None where all were told already."""
    calls = tuple(pending for pending in turn.at_work if not pending.stopping)
    return Interrupt(calls=calls, message=message) if calls else None


# ── what is changed ──


def relayed(state: State, turn: Turn, action: Relay) -> Change:
    """Tell readers what runs ask and how far they are; a card of the call says the latter too."""
    pending = {one.call.call_id: one for one in turn.at_work}
    events: list[Draft] = []
    for word in action.words:
        pending[word.call_id], told = _heard(turn, pending[word.call_id], word)
        events += told
    after = replace(turn, pending=tuple(pending.get(one.call.call_id, one) for one in turn.pending))
    if after.waits_for_people and not turn.waits_for_people:
        events.append(Draft(type="turn.waiting", data={"turn_id": turn.turn_id, "on": "input"}))
    shown = {word.call_id: str(word.told.get("text", "")) for word in action.words if word.kind == "progress"}
    told_to_all = [one for one in turn.at_work if pending[one.call.call_id].private_to is None]
    progress = [(one, shown[one.call.call_id]) for one in told_to_all if one.call.call_id in shown]
    return Change(
        kind="relay",
        state=replace(state, turn=after),
        link_turn=turn.turn_id,
        events=tuple(events),
        posts=(
            *(post for one, text in progress for post in posts.progress_on_cards(one, text)),
            *(posts.notice(str(word.told.get("text", ""))) for word in action.words if _unshown(after, word)),
        ),
        consumed=tuple(word.seq for word in action.words),
        outcomes=tuple(Ended(submission_id=word.submission_id, outcome=Outcome.COMPLETED) for word in action.words),
    )


def _unshown(turn: Turn, word: FromChild) -> bool:
    """Whether a word is of a request that still waits and whose card nobody can see."""
    waiting = {request.prompt_id for pending in turn.at_work for request in pending.requests}
    return word.kind == "unshown" and str(word.told.get("request_id", "")) in waiting


def _heard(turn: Turn, pending: Pending, word: FromChild) -> tuple[Pending, list[Draft]]:
    here: dict[str, JsonValue] = {"turn_id": turn.turn_id, "call_id": pending.call.call_id, "run_id": word.run_id}
    match word.kind:
        case "asked":
            request = word.told.get("request")
            body: Mapping[str, Any] = request if isinstance(request, Mapping) else {}
            asked = _request(body, word)
            data: dict[str, JsonValue] = {**here, "requests": [dict(body)]}
            told = [Draft(type="input.requested", data=data)]
            if asked.connection:
                told.append(signing.required_by_run(turn, body, pending.call.call_id))
            return replace(pending, requests=(*pending.requests, asked)), told
        case "resolved":
            prompt_id = str(word.told.get("request_id", ""))
            request_of = next((one for one in pending.requests if one.prompt_id == prompt_id), None)
            left = tuple(one for one in pending.requests if one.prompt_id != prompt_id)
            resolution: dict[str, JsonValue] = {
                "request_id": prompt_id,
                "kind": _kind(request_of),
                "outcome": word.told.get("outcome"),
            }
            if word.told.get("by"):
                resolution["responder"] = {"name": word.told["by"]}
            data = {**here, "resolutions": [resolution]}
            ended = _completed(turn, request_of, PromptOutcome(str(word.told.get("outcome"))))
            return replace(pending, requests=left), [*ended, Draft(type="input.resolved", data=data)]
        case "reminded":
            prompt_id = str(word.told.get("request_id", ""))
            request_of = next((one for one in pending.requests if one.prompt_id == prompt_id), None)
            data = {**here, "request_id": prompt_id, "kind": _kind(request_of)}
            return pending, [Draft(type="input.reminded", data=data)] if request_of is not None else []
        case "unshown":
            about = {name: word.told.get(name) for name in ("request_id", "delivery_id", "error")}
            data = {**here, **about, "kind": Purpose.QUESTION.value, "fallback": "text"}
            return pending, [Draft(type="input.undeliverable", data=data)]
        case "account":
            return replace(pending, private_to=turn.requester.id), []
        case _:
            data = {**here, "step_index": turn.step_index, "tool": pending.call.tool, "text": word.told.get("text")}
            if pending.private_to is not None:
                data["private_to"] = {"id": pending.private_to, "name": turn.requester.name}
            return pending, [Draft(type="action.partial", data=data)]


def _kind(request: ChildRequest | None) -> str:
    return (request.kind if request is not None else Purpose.QUESTION).value


def _completed(turn: Turn, request: ChildRequest | None, outcome: PromptOutcome) -> list[Draft]:
    """Tell readers how a request to sign in ended; nothing of another one."""
    if request is None or not request.connection:
        return []
    data = signing.completed_data(turn.turn_id, request.prompt_id, request.connection, outcome)
    return [Draft(type="authorization.completed", data=data)]


def _request(body: Mapping[str, Any], word: FromChild) -> ChildRequest:
    requester = str((body.get("requester") or {}).get("id", ""))
    answerers = body.get("answerers")
    speakers = [str(one) for one in answerers] if isinstance(answerers, list) else [requester] if body.get("by") is None else []
    return ChildRequest(
        prompt_id=str(body.get("request_id", "")),
        asked_after=word.seq,
        options=tuple((str(one["id"]), str(one["label"])) for one in body.get("options") or ()),
        speakers=tuple(who for who in speakers if who) if body.get("allow_freeform") else (),
        connection=str(body.get("connection") or ""),
    )


def interrupted(state: State, turn: Turn, action: Interrupt, *, now: int) -> Change:
    """Tell runs to stop; what they come to closes their calls."""
    told = {pending.child for pending in action.calls}
    by, seq = now + STOP_MS, action.message.seq
    pending = tuple(replace(one, stop_by=by, stopped_for=seq) if one.child in told else one for one in turn.pending)
    return Change(
        kind="interrupt",
        state=replace(state, turn=replace(turn, pending=pending)),
        link_turn=turn.turn_id,
        cancels=tuple(one.child for one in action.calls if one.child is not None),
    )


def tasks_started(turn: Turn, pending: Sequence[Pending]) -> list[Draft]:
    """Tell readers which runs begin."""
    return [Draft(type="task.started", data=_task(turn, one)) for one in pending]


def tasks_settled(turn: Turn, closed: Sequence[Closed]) -> list[Draft]:
    """Tell readers which runs have ended, and that nobody has to answer these any more."""
    ended = [one for one in closed if one.pending.child is not None]
    drafts = withdrawn(replace(turn, pending=tuple(one.pending for one in ended)))
    return [*drafts, *(_settled(turn, one.pending, one.status) for one in ended)]


def tasks_stopped(turn: Turn) -> list[Draft]:
    """Tell readers of a turn that ends that its runs are waited for no longer."""
    return [*withdrawn(turn), *(_settled(turn, pending, ResultStatus.CANCELLED) for pending in turn.at_work)]


def _settled(turn: Turn, pending: Pending, status: ResultStatus) -> Draft:
    return Draft(type="task.settled", data={**_task(turn, pending), "status": status.value})


def _task(turn: Turn, pending: Pending) -> dict[str, JsonValue]:
    return {
        "turn_id": turn.turn_id,
        "call_id": pending.call.call_id,
        "tool": pending.call.tool,
        "run_id": pending.child,
    }


def withdrawn(turn: Turn) -> list[Draft]:
    """Tell readers that nobody has to answer the runs of a turn any more."""
    told: list[Draft] = []
    for pending in turn.at_work:
        for request in pending.requests:
            resolution: dict[str, JsonValue] = {
                "request_id": request.prompt_id,
                "kind": request.kind.value,
                "outcome": "cancelled",
            }
            data: dict[str, JsonValue] = {"turn_id": turn.turn_id, "call_id": pending.call.call_id, "resolutions": [resolution]}
            told += _completed(turn, request, PromptOutcome.CANCELLED)
            told.append(Draft(type="input.resolved", data=data))
    return told
