"""Answers to prompts: what a person chose, admitted; who may, decided.

What lives here: building an answer, waiting for its fate, evaluating a policy. What does not: settling (durable_core), cards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from pydantic import JsonValue

from bot import formats
from bot.access import AccessPolicy, Action, Deny, members_only
from bot.access import decide as decide_access
from bot.answerers import POLICY_SECONDS, Groups, Resolver
from bot.buttons import NOTE, TEXT
from bot.cards import prompt_body, readable, settled_words
from bot.deciding import Deciding
from bot.edge import Threads, limited
from bot.errors import BadArguments
from bot.formats import Kind
from bot.history import Call
from bot.leftovers import DORMANT, Dormant, Leftovers
from bot.people import LookUpFailed, People
from bot.principal import Principal
from bot.session.edits import CHANGED_TOOL, Edited, NotEdited, edited, regated
from bot.session.ready import ReadyAgent
from bot.turn.state import state_from_json
from channels.events import Place
from durable_core import codec
from durable_core.crypto import payload_digest
from durable_core.errors import NotFound, Stranded, TooLarge, Unstorable
from durable_core.ids import new_id
from durable_core.model import (
    AnswerPolicy,
    AnswerReceipt,
    AnswerStatus,
    EventDraft,
    Interaction,
    OutboxDraft,
    Prompt,
    PromptAnswer,
    PromptOutcome,
    Verdict,
)
from durable_core.retry import RetryPolicy
from durable_core.store import Store

log = logging.getLogger("moorings.answers")

UNREADABLE_MS: Final = 5_000
"""How long an answer that a newer version asked for is left to that version before it is looked at again."""
WAIT_SECONDS: Final = 2.0
"""How long a caller waits for an answer that a worker has to decide."""

FORGOTTEN: Final = "What you changed was deleted before it was looked at. Answer again."

REASONS: Final[dict[str, str]] = {
    "not_yours": "Only the person who asked may answer this.",
    "not_allowed": "You may not answer this.",
    "unknown_author": "Who you are could not be found out just now. Try again later.",
    "elsewhere": "This request is not known here. Answer it where it was asked.",
    "expired": "This request has expired. Nothing was done with your answer.",
    "cancelled": "This request was cancelled. Nothing was done with your answer.",
    "ended": "This conversation has ended. Nothing was done with your answer.",
    "session_stranded": "This conversation can't be gone on with in this version. Write a message to begin anew.",
    "session_dormant": DORMANT,
    "unknown_option": "That is not one of the options of this request.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Admits answers and evaluates who may give them."""

    store: Store
    agents: Mapping[str, ReadyAgent]
    people: People = field(default_factory=People)
    access: AccessPolicy = members_only
    threads: Threads = field(default_factory=Threads)
    """Where an author's access and approval functions run."""
    policy_seconds: float = POLICY_SECONDS
    leftovers: Leftovers | None = None
    groups: Mapping[str, Resolver] = field(default_factory=dict)
    """Who is in a group that may answer, by its name."""
    look_ups: RetryPolicy = field(default_factory=lambda: RetryPolicy(attempts=8, first=timedelta(seconds=1)))
    """How often, and after which waits, it is found out who somebody is; then the answer is refused."""

    async def admit(
        self,
        prompt_id: str,
        option_id: str,
        *,
        principal: Principal,
        place: Place,
        source: str,
        key: str,
        via: str,
        run_id: str | None = None,
        note: str = "",
        fields: Mapping[str, str] | None = None,
        of: str = "",
        at: tuple[str, str] | None = None,
        tell: bool = False,
        edits: Mapping[str, JsonValue] | None = None,
    ) -> AnswerReceipt:
        """Accept somebody's choice; settled at once when who may answer is data, else decided by a worker.

        ``fields`` are those of a form. ``of`` tells a repeat from another payload where the key covers more than this answer.
        ``at`` is the channel and the address where it was given: the prompt must have been put there. With ``tell`` the person is
        told there, alone, if the answer settles nothing. ``edits`` are arguments that are changed with an approval; a worker then
        asks the gates again.

        Raises: NotFound (no such prompt), Conflict, Stranded (a newer version asked, and runs: it has to take the answer).
        """
        prompt = await self.store.prompt(prompt_id)
        if run_id is not None and prompt.run_id != run_id:
            raise NotFound("prompt", prompt_id)
        left = await self._left(prompt)
        if left is None:
            readable(prompt)
        body = prompt_body(prompt)
        note = note or (fields or {}).get(NOTE if option_id else TEXT, "")
        option = _chosen(body, option_id, note) if left is None else None
        if left is not None:
            refused: str | None = left
        elif at is not None and not await self._put_at(prompt, at):
            refused = "elsewhere"
        else:
            refused = "unknown_option" if option is None else await self._denied_at_once(prompt, principal, place)
        told: dict[str, JsonValue] = {"text": note} if note else {}
        if edits and option is not None and option["outcome"] == PromptOutcome.APPROVED.value:
            made = await self._edited(prompt, edits)
            if isinstance(made, NotEdited):
                refused = refused or made.reason
            elif made.edits:
                told |= {"edits": dict(made.edits), "binding": made.binding}
        # whom a list names is looked up too, where the platform has to be asked who they are: access may say no
        judge = "edits" in told or (prompt.policy is AnswerPolicy.LISTED and self.people.asks(principal))
        tell_at = at if tell else None
        outcome = PromptOutcome(option["outcome"]) if option is not None else PromptOutcome.IGNORED
        submission_id = new_id("sub")
        who: dict[str, JsonValue] = {
            "principal": principal.to_json(),
            "place": _place_json(place),
            "tell_at": list(tell_at) if tell_at is not None else None,
            "edited": "edits" in told,
        }
        answer = PromptAnswer(
            source=source,
            key=key,
            digest=payload_digest(codec.encode({"prompt": prompt_id, "option": option_id, **told, "text": note, "of": of})),
            submission_id=submission_id,
            prompt_id=prompt_id,
            run_id=run_id,
            option_id=option_id,
            outcome=outcome,
            note=codec.encode(told) if told else None,
            principal=principal.id,
            name=_shown_name(principal, body),
            via=via,
            body=codec.encode(who),
            refused=refused,
            tell=_tell(tell_at, submission_id, principal),
            events=() if judge or prompt.policy is AnswerPolicy.FUNCTION else settled_events(prompt, principal, outcome),
            judge=judge,
        )
        return await self.store.answer(answer)

    async def _left(self, prompt: Prompt) -> str | None:
        """Why a prompt's session is not gone on with: no version that runs reads it, or it is of an earlier start."""
        if self.leftovers is None:
            return None
        run = await self.store.run(prompt.run_id)
        if await self.leftovers.is_stranded(run):
            return "session_stranded"
        try:
            await self.leftovers.refuse_dormant(run)
        except Dormant:
            return "session_dormant"
        return None

    async def _put_at(self, prompt: Prompt, at: tuple[str, str]) -> bool:
        """Whether a copy of the prompt was owed to this address: a button's value alone gives no right."""
        sql = "SELECT 1 FROM moor_outbox WHERE prompt_id = :prompt AND channel = :channel AND address = :address LIMIT 1"
        card = prompt.group or prompt.prompt_id  # prompts that share a card are put where the first one's copies are
        return bool(await self.store.rows(sql, {"prompt": card, "channel": at[0], "address": at[1]}))

    async def _denied_at_once(self, prompt: Prompt, principal: Principal, place: Place) -> str | None:
        """Why somebody may not click here, where no worker will ask: the default policy, or a prompt older than the policy."""
        if self.access is not members_only and prompt.policy is AnswerPolicy.FUNCTION:
            return None
        if self.people.asks(principal):
            return None  # a worker looks them up; the requester's own answer needs no more than being theirs
        try:
            decision = await decide_access(
                self.access, principal, place, Action.CLICK, threads=self.threads, seconds=self.policy_seconds
            )
        except Exception:
            log.exception("whether %s may be answered could not be decided; refused", prompt.prompt_id)
            return "not_allowed"
        return decision.text if isinstance(decision, Deny) else None

    async def result(self, receipt: AnswerReceipt, *, seconds: float = WAIT_SECONDS) -> AnswerReceipt:
        """Wait a little for a pending answer to be decided."""
        if receipt.status is not AnswerStatus.PENDING:
            return receipt
        changed = asyncio.Event()
        unwatch = self.store.watch(lambda _: changed.set())
        try:
            async with asyncio.timeout(seconds):
                while True:
                    changed.clear()
                    decided = await self.store.interaction_result(receipt.submission_id)
                    if decided is not None:
                        return decided
                    await changed.wait()
        except TimeoutError:
            return receipt
        finally:
            unwatch()

    async def evaluate(self, interaction: Interaction) -> None:
        """Decide whether somebody may answer, outside of any transaction, then settle or refuse."""
        answer = interaction.answer
        try:
            readable(interaction.prompt)
            who = formats.read(Kind.ANSWER, answer.body, run_id=interaction.prompt.run_id)
        except Stranded:  # for newer code
            await self.store.postpone(interaction, until=await self.store.now() + UNREADABLE_MS)
            return
        principal = Principal.from_json(who["principal"])
        tell_at = (str(who["tell_at"][0]), str(who["tell_at"][1])) if who["tell_at"] is not None else None
        try:
            place = _place(who["place"])
            principal, place = await self.people.resolve(principal, place, tell_at[1] if tell_at is not None else None)
            refusal = self._refusal(interaction, principal, place, edited_call=bool(who.get("edited")))
            reason = (await limited(refusal, self.policy_seconds)).value()
        except LookUpFailed as error:
            if not self.look_ups.exhausted(interaction.attempts):
                await self._look_up_later(interaction, error)
                return
            reason = "unknown_author"
        except Exception:
            log.exception("who may answer %s could not be decided; refused", answer.prompt_id)
            reason = "not_allowed"
        events = () if reason is not None else settled_events(interaction.prompt, principal, answer.outcome)
        await self.store.decide(
            Verdict(
                interaction_id=interaction.interaction_id,
                epoch=interaction.epoch,
                allowed=reason is None,
                reason=reason,
                events=events,
                name=_shown_name(principal, prompt_body(interaction.prompt)),
                tell=_tell(tell_at, interaction.interaction_id, principal),
            )
        )

    async def _look_up_later(self, interaction: Interaction, error: LookUpFailed) -> None:
        log.warning("who answered %s could not be looked up yet: %s", interaction.answer.prompt_id, error.__cause__ or error)
        wait = self.look_ups.delay_ms(interaction.attempts, retry_after=error.retry_after)
        await self.store.postpone(interaction, until=await self.store.now() + wait)

    async def _refusal(self, interaction: Interaction, principal: Principal, place: Place, *, edited_call: bool) -> str | None:
        decision = await decide_access(self.access, principal, place, Action.CLICK, threads=self.threads)
        if isinstance(decision, Deny):
            return decision.text
        body = prompt_body(interaction.prompt)
        requester = Principal.from_json(body["requester"])
        agent = self.agents.get(interaction.run_name)
        tool = agent.tools.get(body["action"]["tool"]) if agent is not None and body["action"] is not None else None
        # a prompt says itself whether the tool's approval decides: a call that ran without one is its requester's to run again
        by_approval = body.get("by_approval", interaction.prompt.kind == "approval")
        approval = tool.approval if tool is not None and by_approval else None
        if agent is None or tool is None or approval is None:
            if principal.id != requester.id or principal.anonymous:
                return "not_yours"
            # others were asked, by a rule that is gone: nobody approves in their place
            return CHANGED_TOOL if by_approval and interaction.answer.outcome is PromptOutcome.APPROVED else None
        asked = await self._asked(interaction.prompt, body)
        deciding, level = self._deciding(agent), interaction.prompt.level
        try:
            call = tool.call(asked.arguments, asked.call_id, requester=requester)
        except BadArguments:
            return CHANGED_TOOL
        if not await deciding.may_answer(approval, call, principal, level=level):
            return "not_allowed"
        note = interaction.answer.note
        told = formats.read(Kind.NOTE, note, run_id=interaction.prompt.run_id) if note is not None else {}
        if not told.get("edits"):
            return FORGOTTEN if edited_call else None
        made = edited(tool, asked, told["edits"], requester=requester)
        if isinstance(made, NotEdited):
            return made.reason
        if made.binding != told.get("binding"):
            return CHANGED_TOOL
        return await regated(deciding, tool, made.call, requester=requester, responder=principal, level=level)

    def _deciding(self, agent: ReadyAgent) -> Deciding:
        groups = Groups(resolvers=self.groups, threads=self.threads, seconds=self.policy_seconds)
        return Deciding(threads=self.threads, seconds=self.policy_seconds, groups=groups, model=agent.model)

    async def _edited(self, prompt: Prompt, edits: Mapping[str, JsonValue]) -> Edited | NotEdited:
        """Change the call that a prompt is about."""
        body = prompt_body(prompt)
        agent = self.agents.get((await self.store.run(prompt.run_id)).name)
        tool = agent.tools.get(body["action"]["tool"]) if agent is not None else None
        if tool is None or not body.get("edit"):
            return NotEdited(f"{', '.join(sorted(edits))} may not be changed here.")
        try:
            codec.encode(dict(edits))
        except (TooLarge, Unstorable, ValueError, TypeError, RecursionError):
            return NotEdited("What was changed can't be kept: it is too large, or no JSON.")
        return edited(tool, await self._asked(prompt, body), edits, requester=Principal.from_json(body["requester"]))

    async def _asked(self, prompt: Prompt, body: Mapping[str, Any]) -> Call:
        """Return the call that a prompt is about, with its real arguments: those in the body may be masked."""
        action = body["action"]
        shown = Call(action["call_id"], action["tool"], arguments=action["input"])
        if not body.get("masked"):
            return shown
        for step in await self.store.steps(prompt.run_id, start=prompt.step_n):
            turn = state_from_json(formats.read(Kind.STEP, step.output, run_id=prompt.run_id)["state"]).turn
            found = [one.call for one in (turn.pending if turn is not None else ()) if one.prompt_id == prompt.prompt_id]
            if found:
                return found[0]
        return shown


def _chosen(body: Mapping[str, Any], option_id: str, note: str) -> dict[str, Any] | None:
    """The option that is meant; where own words are allowed and no option is named, those."""
    if not option_id and note and body.get("allow_freeform"):
        return {"id": "", "outcome": PromptOutcome.ANSWERED.value}
    return next((option for option in body["options"] if option["id"] == option_id), None)


def settled_events(prompt: Prompt, principal: Principal, outcome: PromptOutcome) -> tuple[EventDraft, ...]:
    """The events that tell readers who settled a prompt and how."""
    body = prompt_body(prompt)
    turn_id = body["turn_id"]
    here: dict[str, JsonValue] = {"turn_id": turn_id, "request_id": prompt.prompt_id, "kind": prompt.kind}
    resolution: dict[str, JsonValue] = {
        "request_id": prompt.prompt_id,
        "kind": prompt.kind,
        "outcome": outcome.value,
        "responder": {"id": principal.id, "name": _shown_name(principal, body)},
    }
    return (
        EventDraft(
            type="approval.settled",
            body=codec.encode({**here, "responder": principal.id, "outcome": outcome.value}),
        ),
        EventDraft(type="input.resolved", body=codec.encode({"turn_id": turn_id, "resolutions": [resolution]})),
    )


def _tell(tell_at: tuple[str, str] | None, submission_id: str, principal: Principal) -> OutboxDraft | None:
    """What the person is owed, alone, when the answer settles nothing; the words are found when it is sent."""
    if tell_at is None or principal.anonymous:
        return None
    body: dict[str, JsonValue] = {"kind": "answer", "submission_id": submission_id, "private_to": principal.id}
    return OutboxDraft(delivery_id=new_id("dlv"), channel=tell_at[0], address=tell_at[1], body=codec.encode(body))


def _shown_name(principal: Principal, body: Mapping[str, Any]) -> str:
    """The name that goes on the card: of the requester the one that the conversation knows."""
    requester = body["requester"]
    return str(requester["name"]) if principal.id == requester["id"] else principal.name


def explain(receipt: AnswerReceipt) -> str | None:
    """Say in words, for the person alone, what became of an answer that settled nothing."""
    if receipt.status is AnswerStatus.SETTLED:
        return None
    if receipt.status is AnswerStatus.ALREADY_SETTLED and receipt.prompt is not None:
        settled = settled_words(receipt.prompt, prompt_body(receipt.prompt))
        return f"This was settled before: {settled.removesuffix('.')}."
    if receipt.reason == "not_allowed" and receipt.prompt is not None:
        return f"Only {prompt_body(receipt.prompt)['waiting_for']} may answer this."
    return REASONS.get(receipt.reason or "", receipt.reason or None)


def _place_json(place: Place) -> dict[str, JsonValue]:
    return {"kind": place.kind, "shared_outside": place.shared_outside, "title": place.title}


def _place(stored: dict[str, Any]) -> Place:
    return Place(stored["kind"], stored["shared_outside"], title=stored["title"])
