"""Requests to people, for callers who are known: which are open, answers to them, overrides, and the audit of it all.

What lives here: `PromptApi` on the store, who sees which request. What does not: HTTP (bot/server/), who may answer (rights.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from bot import participants
from bot.answers import MOST_A_MINUTE, Answers, Way, belongs
from bot.cards import prompt_body
from bot.errors import NotReady, Problem
from bot.given import option_named
from bot.principal import Principal
from bot.session_api import JsonObject, Response, ResponseResult
from bot.signins.values import Offer
from bot.telling import TOO_OFTEN, explain
from bot.views import iso, prompt_row, response_view
from channels.events import Place
from durable_core import codec
from durable_core.crypto import payload_digest
from durable_core.errors import ContentGone, KeyMissing, KeyWrong, NotFound, Stranded
from durable_core.ids import new_id
from durable_core.model import AnswerReceipt, AnswerStatus, Prompt
from durable_core.store import Store

log = logging.getLogger("moorings.prompts")

API_PLACE: Final = Place("api")
SIGN_IN: Final = "sign-in"
CONNECT: Final = "connect"
"""The option that asks for a link: it settles nothing."""
MOST_LOOKED_AT: Final = 1_000
"""How many open requests are looked at for one page of those that a caller may see."""
_PAGE: Final = 200
NEWER: Final = "This was asked by a newer version, which has to take the answer. Send the same again."

OPEN: Final = """
    SELECT prompt_id, created_at FROM moor_prompt
    WHERE outcome IS NULL AND (created_at, prompt_id) > (:at, :after) ORDER BY created_at, prompt_id LIMIT :limit
"""
# What is left out is of other people's sessions, and theirs alone to answer; of what is not, each is looked at. One look-up for
# each request is what these subqueries are: EXISTS would let PostgreSQL read all runs there are.
OPEN_TO: Final = """
    SELECT p.prompt_id, p.created_at FROM moor_prompt p
    WHERE p.outcome IS NULL AND (p.created_at, p.prompt_id) > (:at, :after)
        AND (p.requester = :who OR p.policy <> 'requester' OR (:mine = 0 AND (
            (SELECT r.creator = :who OR r.kind <> 'session' FROM moor_run r WHERE r.run_id = p.run_id)
            OR (SELECT count(*) FROM moor_participant m WHERE m.run_id = p.run_id AND m.principal = :who) > 0)))
    ORDER BY p.created_at, p.prompt_id LIMIT :limit
"""
# A run that works for a session has the session's time in its id (CORE 16), as have others of that millisecond. The index
# moor_prompt_time is on this very expression.
OF_OTHERS: Final = """
    SELECT prompt_id FROM moor_prompt
    WHERE outcome IS NULL AND substr(run_id, length(run_id) - 25, 10) = :time AND run_id <> :session LIMIT 1000
"""


async def open_of_session(store: Store, session_id: str) -> list[Prompt]:
    """Return the open requests of a session, those of runs that work for it too, oldest first."""
    found = await store.open_prompts(session_id)
    time = session_id.partition("_")[2][:10]
    for (prompt_id,) in await store.rows(OF_OTHERS, {"time": time, "session": session_id}):
        prompt = await _readable(store, str(prompt_id))
        if prompt is not None and belongs(prompt, session_id):
            found.append(prompt)
    return sorted(found, key=lambda prompt: (prompt.created_at, prompt.created_seq, prompt.call_id or ""))


async def every_open(
    store: Store, *, after: str | None = None, who: str | None = None, mine: bool = False
) -> AsyncIterator[Prompt]:
    """Go through all open requests, oldest first, from behind one of them on. Raises: NotFound.

    ``who`` leaves out those that can't be their business, ``mine`` also those that they can't answer.
    """
    at, last = (0, "") if after is None else ((await store.prompt(after)).created_at, after)
    of: dict[str, str | int | bytes | None] = {} if who is None else {"who": who, "mine": int(mine)}
    while rows := await store.rows(OPEN_TO if of else OPEN, {**of, "at": at, "after": last, "limit": _PAGE}):
        for prompt_id, created_at in rows:
            prompt = await _readable(store, str(prompt_id))
            if prompt is not None:
                yield prompt
            at, last = int(created_at or 0), str(prompt_id)
        if len(rows) < _PAGE:
            return


async def _readable(store: Store, prompt_id: str) -> Prompt | None:
    try:
        return await store.prompt(prompt_id)
    except (ContentGone, KeyMissing, KeyWrong, NotFound) as error:
        log.warning("%s is left out of a list: %s", prompt_id, error)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """`PromptApi` over a store."""

    store: Store
    answers: Answers
    offer: Callable[[str], Awaitable[Offer]] | None = None
    """Makes a link for a sign-in request."""

    async def listed(
        self, caller: Principal, *, everyone: bool, session_id: str | None, mine: bool, after: str | None, limit: int
    ) -> JsonObject:
        """List open requests that the caller sees: all with `everyone`, else those of own sessions and those to answer."""
        found: list[Prompt] = []
        looked_at, last, more = 0, "", False
        who = None if everyone and not mine else caller.id
        async for prompt in self._these(session_id, after, who=who, mine=mine):
            more = len(found) == limit or looked_at == MOST_LOOKED_AT
            if more:
                break
            looked_at, last = looked_at + 1, prompt.prompt_id
            if mine:
                wanted = await self.answers.rights.may_answer(prompt, caller)
            else:
                wanted = everyone or await self.sees(caller, prompt)
            found += [prompt] if wanted else []
        return {"prompts": [prompt_row(prompt) for prompt in found], "next": last if more else None}

    async def _these(self, session_id: str | None, after: str | None, *, who: str | None, mine: bool) -> AsyncIterator[Prompt]:
        if session_id is None:
            try:
                async for prompt in every_open(self.store, after=after, who=who, mine=mine):
                    yield prompt
            except NotFound:
                raise Problem(400, "invalid_query", "after has to be the request_id that `next` gave.") from None
            return
        prompts = await open_of_session(self.store, session_id)
        ids = [prompt.prompt_id for prompt in prompts]
        for prompt in prompts[ids.index(after) + 1 :] if after in ids else prompts:
            yield prompt

    async def sees(self, caller: Principal, prompt: Prompt) -> bool:
        """Whether a request is the caller's business: of a session of theirs, asked by them, or theirs to answer."""
        if caller.anonymous:
            return False
        if prompt.requester == caller.id:
            return True
        session_id = str(prompt_body(prompt).get("session_id") or prompt.run_id)
        if await self._in_session(caller, session_id):
            return True
        return await self.answers.rights.may_answer(prompt, caller)

    async def _in_session(self, caller: Principal, session_id: str) -> bool:
        try:
            run = await self.store.run(session_id)
        except NotFound:
            return False
        return run.creator == caller.id or await participants.takes_part(self.store, session_id, caller.id)

    async def respond(
        self, caller: Principal, session_id: str, *, responses: Sequence[Response], key: str | None
    ) -> Sequence[ResponseResult]:
        """Answer requests of one session; all of them must exist and be the caller's business, each then has its own fate.

        Raises: NotFound, Conflict, Problem.
        """
        chosen = []
        for response in responses:
            prompt = await self._one(response.request_id, session_id)
            if not await self.sees(caller, prompt) and not _answered_before(prompt, caller):
                raise NotFound("prompt", response.request_id)
            chosen.append((response, response.option_id or option_named(prompt_body(prompt), response.text or "")))
        of = payload_digest(codec.encode([_given_json(one) for one in responses])).hex()
        receipts = []
        for place, (response, option_id) in enumerate(chosen):
            way = Way(
                via="api",
                source=f"api:{caller.id}:responses",
                key=f"{key}:{place}" if key is not None else new_id("key"),
                of=of,
            )
            words = response.note or ("" if option_id and response.option_id is None else response.text) or ""
            receipt = await self._admitted(
                response.request_id,
                option_id,
                principal=caller,
                place=API_PLACE,
                way=way,
                run_id=session_id,
                words=words,
                edits=response.edits,
            )
            receipts.append(receipt)
        decided = await asyncio.gather(*(self.answers.result(receipt) for receipt in receipts))
        return [response_view(response.request_id, receipt) for (response, _), receipt in zip(chosen, decided, strict=True)]

    async def override(
        self, caller: Principal, request_id: str, *, option_id: str, reason: str, note: str | None, key: str | None
    ) -> ResponseResult:
        """Decide a request whatever it says of who may; the caller's right to do so has been checked. Raises: NotFound."""
        way = Way(via="api", source=f"api:{caller.id}:override", key=key if key is not None else new_id("key"))
        given: dict[str, Any] = {"principal": caller, "place": API_PLACE, "way": way, "words": note or "", "override": reason}
        return response_view(request_id, await self._admitted(request_id, option_id, **given))

    async def connect(self, caller: Principal, request_id: str, *, key: str | None) -> JsonObject:
        """Make a link for the one whom a sign-in request asks. That it was asked for is audited, like a pressed Connect.

        Raises: NotFound, Problem.
        """
        prompt = await self.store.prompt(request_id)
        if not await self.sees(caller, prompt):
            raise NotFound("prompt", request_id)
        if prompt.requester != caller.id:
            raise Problem(403, "not_yours", "Only the person who is asked to sign in may have a link. Ask as them.")
        if prompt.kind != SIGN_IN or self.offer is None:
            raise Problem(409, "nothing_to_connect", "This request asks for no account. Answer it by one of its options.")
        source = f"api:{caller.id}:connect"
        way = Way(via="api", source=source, key=key if key is not None else new_id("key"), hands_over=True)
        receipt = await self._admitted(request_id, CONNECT, principal=caller, place=API_PLACE, way=way)
        if receipt.reason == TOO_OFTEN:
            words = f"More than {MOST_A_MINUTE} links within a minute. Use the newest, or wait a minute."
            raise Problem(429, TOO_OFTEN, words, retryable=True, retry_after=60)
        if receipt.status is not AnswerStatus.ASIDE:
            raise Problem(409, "nothing_to_connect", explain(receipt) or "There is nothing to connect any more.")
        try:
            offer = await self.offer(request_id)
        except NotReady as error:
            raise Problem(503, "not_ready", str(error)) from error
        if not offer.url:
            raise Problem(409, "nothing_to_connect", offer.words)
        return {"url": offer.url, "code": offer.code, "expires_at": iso(offer.expires_at)}

    async def audit(self, *, session_id: str | None, request_id: str | None, after: int, limit: int) -> JsonObject:
        """Read the audit, in order: entries as they are hashed."""
        entries = await self.store.audit(after=after, limit=limit, run_id=session_id, prompt_id=request_id)
        return {"entries": [asdict(entry) for entry in entries], "next": entries[-1].n if len(entries) == limit else None}

    async def _one(self, request_id: str, session_id: str) -> Prompt:
        prompt = await self.store.prompt(request_id)
        if not belongs(prompt, session_id):
            raise NotFound("prompt", request_id)
        return prompt

    async def _admitted(self, request_id: str, option_id: str, **given: Any) -> AnswerReceipt:
        try:
            return await self.answers.admit(request_id, option_id, **given)
        except Stranded as error:
            raise Problem(503, "newer_version", NEWER, retryable=True) from error


def _answered_before(prompt: Prompt, caller: Principal) -> bool:
    """Whether somebody answered it who may not see it any more: a repeat is told what came of it."""
    return caller.id == prompt.settled_by or any(vote.principal == caller.id for vote in prompt.votes)


def _given_json(response: Response) -> list[Any]:
    plain = [response.request_id, response.option_id, response.text]
    more = [response.note, None if response.edits is None else dict(response.edits)]
    return plain if more == [None, None] else [*plain, *more]
