"""Where a session's rows hold one person's own words, and what stands there once they are deleted.

What lives here: reading rows and rewriting them as values that still fold. What does not: which sessions (forget.py), SQL writes.

Their words stand in the inbox, in the history (steps copy messages), as notes to answers, and as the name beside a message. What
tools fetched with an account of theirs goes like their words, and so does what a workflow run told of it on its way. What others
wrote about them, what the model answered and what other calls returned is not theirs, and is not told apart.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any, cast

from bot.display import quoted_note
from durable_core import codec
from durable_core.errors import NotFound
from durable_core.model import Event, RunKind, RunStatus
from durable_core.operations import EntryKind
from durable_core.store import Store

DELETED = "[message deleted]"
"""What the model and readers see in place of a message."""
NOTE_DELETED = "[deleted]"
RESULT_DELETED = "[fetched with an account of somebody who was forgotten; deleted]"
"""What stands in place of what a call returned."""
SOMEONE = "someone"
"""The name beside it."""

_PAGE = 500
_MESSAGES = "SELECT seq FROM moor_command WHERE run_id = :run_id AND principal = :principal AND kind = 'message' ORDER BY seq"
_SIGNALS = "SELECT seq FROM moor_command WHERE run_id = :run_id AND kind = 'signal' ORDER BY seq"
_NOTES = "SELECT prompt_id FROM moor_prompt WHERE run_id = :run_id AND settled_by = :principal AND note IS NOT NULL"
_RESULTS = "SELECT step_n, key FROM moor_record WHERE run_id = :run_id AND kind = 'result' ORDER BY step_n, key"
_ANSWERS = "SELECT interaction_id FROM moor_interaction WHERE run_id = :run_id AND principal = :principal AND note IS NOT NULL"


async def words_of(store: Store, run_id: str, principal: str) -> dict[str, bytes]:
    """Return what is to stand in place of somebody's words, by the names that `Store.redact` takes."""
    here: dict[str, str | int | bytes | None] = {"run_id": run_id, "principal": principal}
    bodies: dict[str, bytes] = {}
    for (seq,) in await store.rows(_MESSAGES, here):
        name = f"command:{int(seq or 0)}"
        for body in (await store.content(run_id, [name])).values():
            bodies[name] = codec.encode(_message(codec.decode(body), principal), written=codec.written_by(body))
    notes = {str(prompt_id): await _note(store, str(prompt_id)) for (prompt_id,) in await store.rows(_NOTES, here)}
    # arguments that were changed are no words: without them a call would run that nobody agreed to
    kept: dict[str, dict[str, Any]] = {
        prompt_id: {name: note[name] for name in ("edits", "binding") if name in note} for prompt_id, note in notes.items()
    }
    bodies |= {f"note:{prompt_id}": codec.encode({"text": "", **rest}) for prompt_id, rest in kept.items()}
    gone = codec.encode({"text": "", "forgotten": True})
    bodies |= {f"answer:{answer_id!s}": gone for (answer_id,) in await store.rows(_ANSWERS, here)}
    bodies |= await _results(store, run_id, principal)
    bodies |= await _told_by_runs(store, run_id, principal)
    if not await _open_workflow(store, run_id):
        bodies |= await _answers(store, run_id, notes)
    said = [text for note in notes.values() if (text := str(note.get("text", "")))]
    for step in await store.steps(run_id):
        output = codec.decode(step.output)
        if isinstance(output, dict) and _step(output, principal, said):
            bodies[f"step:{step.n}"] = codec.encode(output, written=codec.written_by(step.output))
    async for event in all_events(store, run_id):
        data = codec.decode(event.body)
        if isinstance(data, dict) and _event(event.type, data, principal, said):
            bodies[f"event:{event.seq}"] = codec.encode(data, written=codec.written_by(event.body))
    return bodies


async def _results(store: Store, run_id: str, principal: str) -> dict[str, bytes]:
    """Rewrite what tools recorded that they fetched with an account of theirs."""
    bodies: dict[str, bytes] = {}
    for step_n, key in await store.rows(_RESULTS, {"run_id": run_id}):
        name = f"record:{int(step_n or 0)}:{key!s}"
        for body in (await store.content(run_id, [name])).values():
            item = codec.decode(body)
            if isinstance(item, dict) and _fetched(item, principal):
                bodies[name] = codec.encode({**item, "content": RESULT_DELETED}, written=codec.written_by(body))
    return bodies


async def is_needed(store: Store, run_id: str, principal: str) -> bool:
    """Tell whether a workflow run goes on that has been told what they answered: it would go another way without it."""
    if not await _open_workflow(store, run_id):
        return False
    rows = await store.rows(_NOTES, {"run_id": run_id, "principal": principal})
    return bool(await _answers(store, run_id, [str(prompt_id) for (prompt_id,) in rows]))


async def _open_workflow(store: Store, run_id: str) -> bool:
    run = await store.run(run_id)
    return run.kind is RunKind.WORKFLOW and run.status is RunStatus.OPEN


async def _answers(store: Store, run_id: str, prompt_ids: Collection[str]) -> dict[str, bytes]:
    """Rewrite what a workflow run was told of their answers, in their own words, to its questions."""
    bodies: dict[str, bytes] = {}
    for step in await store.steps(run_id) if prompt_ids else ():
        entry: Any = codec.decode(step.output) if step.kind == EntryKind.ANSWER.value else {}
        value = entry.get("value")
        if isinstance(value, dict) and value.get("prompt_id") in prompt_ids and value.get("text") not in {None, NOTE_DELETED}:
            shown = {**value, "text": NOTE_DELETED, "by": SOMEONE, "name": SOMEONE}
            bodies[f"step:{step.n}"] = codec.encode({**entry, "value": shown}, written=codec.written_by(step.output))
    return bodies


async def _told_by_runs(store: Store, run_id: str, principal: str) -> dict[str, bytes]:
    """Rewrite what a session was told by runs of theirs that have acted with an account: how far they were, what they came to."""
    names = [f"command:{int(seq or 0)}" for (seq,) in await store.rows(_SIGNALS, {"run_id": run_id})]
    told = {name: (body, codec.decode(body)) for name, body in (await store.content(run_id, names)).items()}
    lent = {str(data["run_id"]) for _, data in told.values() if isinstance(data, dict) and data.get("kind") == "account"}
    theirs = {child for child in lent if await _created_by(store, child, principal)}
    bodies: dict[str, bytes] = {}
    for name, (body, data) in told.items():
        if isinstance(data, dict) and data.get("run_id") in theirs and (without := _without_found(data)) != data:
            bodies[name] = codec.encode(without, written=codec.written_by(body))
    return bodies


async def _created_by(store: Store, run_id: str, principal: str) -> bool:
    try:
        return (await store.run(run_id)).creator == principal
    except NotFound:
        return False


def _without_found(told: dict[str, Any]) -> dict[str, Any]:
    match told:
        case {"kind": "progress"}:
            return {**told, "text": RESULT_DELETED}
        case {"kind": "child", "ok": True}:
            return {**told, "value": RESULT_DELETED}
        case {"kind": "child", "error": dict() as error}:
            return {**told, "error": {**error, "message": RESULT_DELETED}}
        case _:
            return told


def _message(body: Any, principal: str) -> Any:
    """Rewrite an inbox entry; it is read like any other, since it may not have been consumed yet."""
    if not isinstance(body, dict) or "text" not in body:
        return {"forgotten": True}
    author = body.get("author")
    return {**body, "text": DELETED, **({"author": {**author, "name": SOMEONE}} if isinstance(author, dict) else {})}


def _step(output: dict[str, Any], principal: str, said: list[str]) -> bool:
    """Rewrite what a step added to the history and what it left as state; False where nothing is theirs."""
    before = codec.encode(output)
    for item in output.get("items", []):
        if item.get("kind") == "user" and item.get("principal") == principal:
            item |= {"text": DELETED, "author": SOMEONE}
        elif _fetched(item, principal):
            item["content"] = RESULT_DELETED
        elif item.get("kind") == "result":
            item["content"] = _without(item["content"], said)
    turn = (output.get("state") or {}).get("turn") or {}
    requester = turn.get("requester") or {}
    if requester.get("id") == principal:
        requester["name"] = SOMEONE
    for pending in turn.get("pending", []):
        consent = pending.get("consent")
        if consent is not None and consent.get("principal") == principal:
            consent |= {"note": "", "name": SOMEONE}
    return codec.encode(output) != before


def _event(kind: str, data: dict[str, Any], principal: str, said: list[str]) -> bool:
    """Rewrite an event's own data; messages are only referred to, so they need no rewriting here."""
    author = data.get("author")
    owner = data.get("private_to")
    if isinstance(owner, dict) and owner.get("id") == principal:
        found = codec.encode(data)
        data.update({name: RESULT_DELETED for name in ("result", "text") if name in data})
        owner["name"] = SOMEONE
        return codec.encode(data) != found
    if (
        kind == "message.received"
        and isinstance(author, dict)
        and author.get("id") == principal
        and author.get("name") != SOMEONE
    ):
        author["name"] = SOMEONE
        return True
    if kind == "action.result" and said:
        before = data.get("result")
        data["result"] = _without(before, said)
        return bool(data["result"] != before)
    return False


def _fetched(item: Mapping[str, Any], principal: str) -> bool:
    """Tell whether a stored item is a result that only this person's own account gave, and that is still there."""
    return item.get("private_to") == principal and item.get("content") != RESULT_DELETED


def _without(result: Any, said: list[str]) -> Any:
    """Take quoted notes out of a sentence of the framework, and own words out of the answer to a question."""
    if isinstance(result, str):
        for note in said:
            result = result.replace(quoted_note(note), quoted_note(NOTE_DELETED))
    elif isinstance(result, dict) and result.get("text") in said:
        return {**result, "text": NOTE_DELETED}
    return result


async def _note(store: Store, prompt_id: str) -> dict[str, Any]:
    note = (await store.prompt(prompt_id)).note
    return cast("dict[str, Any]", codec.decode(note)) if note is not None else {}


async def all_events(store: Store, run_id: str) -> AsyncIterator[Event]:
    """Read every event of a run, hidden ones too, a page at a time."""
    start = 0
    while page := await store.events(run_id, start=start, limit=_PAGE, hidden=True):
        for event in page:
            yield event
        start = page[-1].seq + 1
