"""What the commands about requests do, on a store.

What lives here: lists of requests, answers and overrides of operators. What does not: options (requests.py), tables (show.py).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pydantic import JsonValue

from bot import preflight
from bot.answers import Answers, Way
from bot.buttons import EDIT
from bot.cards import prompt_body, prompt_note, settled_words
from bot.display import show
from bot.errors import NotReady
from bot.principal import Principal
from bot.prompts import every_open, open_of_session
from bot.session.ready import ready
from bot.telling import explain
from bot.views import iso
from channels.events import Place, Standing
from durable_core.errors import Stranded
from durable_core.ids import new_id
from durable_core.model import AnswerReceipt, AnswerStatus, Prompt
from durable_core.store import Store

VIA: Final = "cli"
MOST_REASON: Final = 500
_COPIES: Final = """
    SELECT channel || ' ' || address, state, last_error FROM moor_outbox
    WHERE prompt_id = :card AND edit_of IS NULL ORDER BY at, lane_seq
"""


class _Copy(NamedTuple):
    at: str
    state: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """An open request, and what went wrong with its cards."""

    prompt: Prompt
    session_id: str
    undelivered: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An answer that an operator gives."""

    option_id: str
    principal: Principal
    text: str = ""
    edits: Mapping[str, JsonValue] = field(default_factory=dict)
    override: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What came of an answer, in words; whether it did something."""

    words: str
    counts: bool


async def listed(store: Store, *, session_id: str | None, undeliverable: bool, limit: int) -> list[Request]:
    """Return open requests, the oldest first; of a session, those of runs that work for it too."""
    if session_id is not None:
        await store.run(session_id)
    found: list[Request] = []
    async for prompt in _these(store, session_id):
        request = await _request(store, prompt)
        if request.undelivered or not undeliverable:
            found.append(request)
        if len(found) == limit:
            break
    return found


async def _these(store: Store, session_id: str | None) -> AsyncIterator[Prompt]:
    if session_id is None:
        async for prompt in every_open(store):
            yield prompt
        return
    for prompt in await open_of_session(store, session_id):
        yield prompt


async def _request(store: Store, prompt: Prompt) -> Request:
    failed = [f"{copy.at}: {copy.error}" for copy in await _copies(store, prompt) if copy.state == "dead"]
    session_id = str(prompt_body(prompt).get("session_id") or prompt.run_id)
    return Request(prompt=prompt, session_id=session_id, undelivered="; ".join(failed))


async def told(store: Store, prompt_id: str) -> list[str]:
    """Say all that there is to say of a request.

    Raises: NotFound.
    """
    prompt = await store.prompt(prompt_id)
    body = prompt_body(prompt)
    lines = [f"{prompt.prompt_id}  {prompt.kind} of {prompt.run_id}, asked {iso(prompt.created_at)} by {prompt.requester}"]
    lines += [str(body.get("text", "")), str(body.get("detail", ""))]
    lines += [f"  {name}: {value}" for name, value in body.get("fields") or ()]
    lines += [f"  read before: {one}" for one in body.get("evidence") or ()]
    if prompt.outcome is None:
        lines.append(f"Open. {_waits_for(prompt)}")
        lines += [f"  {option['id']}: {option['label']}" for option in body.get("options") or ()]
        lines += [f"  may be changed: {one['name']} = {one['value']}" for one in body.get("edit") or ()]
    else:
        by = f" ({prompt.settled_by} by {prompt.settled_via})" if prompt.settled_by else ""
        lines.append(f"{settled_words(prompt, body).removesuffix('.')}, {iso(prompt.settled_at)}{by}.")
        lines += [f"  {name}: {show(value)}" for name, value in prompt_note(prompt).items() if name != "binding"]
    lines += [f"  vote of {vote.principal}: {vote.option_id}, {iso(vote.at)}" for vote in prompt.votes]
    copies = await _copies(store, prompt)
    return lines + [f"  card at {copy.at}: {copy.state}{f' ({copy.error})' if copy.error else ''}" for copy in copies]


async def _copies(store: Store, prompt: Prompt) -> list[_Copy]:
    rows = await store.rows(_COPIES, {"card": prompt.group or prompt.prompt_id})
    return [_Copy(*(str(value) if value is not None else "" for value in row)) for row in rows]


def _waits_for(prompt: Prompt) -> str:
    asked = (prompt.asked if prompt.level else "") or str(prompt_body(prompt).get("waiting_for") or prompt.asked or "somebody")
    votes = f" {len(prompt.votes)} of {prompt.quorum} have approved." if prompt.quorum > 1 else ""
    until = f" Until {iso(prompt.expires_at)}." if prompt.expires_at is not None else ""
    return f"{asked} may answer.{votes}{until}"


async def answer(store: Store, prompt_id: str, given: Given, *, app: str | None) -> Ended:
    """Answer a request for somebody, or override it; waits a little for what a worker has to decide.

    Raises: NotFound.
    """
    answers = _answers(store, app)
    try:
        receipt = await answers.admit(
            prompt_id,
            given.option_id,
            principal=given.principal,
            place=Place("api"),
            way=Way(via=VIA, source=VIA, key=new_id("key"), where=VIA),
            words=given.text,
            edits=given.edits,
            override=given.override,
        )
    except Stranded as error:
        raise NotReady(f"{prompt_id} was asked by a newer version ({error.deployment}); answer it with that one.") from error
    return _ended(await answers.result(receipt))


def _answers(store: Store, app: str | None) -> Answers:
    """Without the app, what is data decides, and a worker all the rest; an answer with changes needs the app's tools."""
    if app is None:
        return Answers(store=store, agents={})
    bot = preflight.load_app(app)
    agents = {agent.name: ready(agent) for agent in bot.agents}
    return Answers(store=store, agents=agents, access=bot.access, groups=bot.groups)


def _ended(receipt: AnswerReceipt) -> Ended:
    match receipt.status:
        case AnswerStatus.SETTLED if receipt.prompt is not None:
            return Ended(words=f"{settled_words(receipt.prompt, prompt_body(receipt.prompt)).removesuffix('.')}.", counts=True)
        case AnswerStatus.PENDING:
            later = "A worker decides who may answer, and none has yet. Look again: moorings prompts show"
            return Ended(words=later, counts=True)
        case status:
            counts = status in (AnswerStatus.SETTLED, AnswerStatus.COUNTED)
            return Ended(words=explain(receipt) or status.value, counts=counts)


def person(principal: str, roles: Sequence[str]) -> Principal:
    """Return somebody by their id; that they are who the operator says, and full members, is the operator's word.

    Raises: NotReady.
    """
    channel, colon, name = principal.partition(":")
    if not (channel and colon and name.strip()):
        raise NotReady(f"--as {principal} is no principal; they are named like slack:T01:U02 or api:farah.")
    return Principal(principal, name.rpartition(":")[2], Standing.MEMBER, frozenset(roles), channel)


def edits_of(written: Sequence[str], *, app: str | None) -> dict[str, JsonValue]:
    """Read arguments that are changed, each as NAME=JSON.

    Raises: NotReady.
    """
    found: dict[str, JsonValue] = {}
    for one in written:
        name, _, text = one.partition("=")
        if app is None:
            raise NotReady("--edit needs the app, which says what may be changed: give --app.")
        try:
            found[name.removeprefix(EDIT)] = json.loads(text)
        except ValueError:
            example = "amount=50 or 'note=\"half\"'"
            raise NotReady(f"--edit {one} can't be read; write NAME=JSON, such as {example}.") from None
    return found


def reason_of(text: str) -> str:
    """Return why somebody overrides.

    Raises: NotReady.
    """
    reason = text.strip()
    if not 1 <= len(reason) <= MOST_REASON:
        raise NotReady(f"--reason has to be 1 to {MOST_REASON} characters.")
    return reason
