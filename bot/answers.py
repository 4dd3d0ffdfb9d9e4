"""Answers to prompts: what a person chose, admitted; who may, decided.

What lives here: building an answer, waiting for its fate, evaluating a policy. What does not: settling (durable_core), cards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from pydantic import JsonValue

from bot import formats
from bot.access import AccessPolicy, Action, Deny, members_only
from bot.access import decide as decide_access
from bot.answerers import POLICY_SECONDS, Resolver
from bot.cards import prompt_body, readable
from bot.edge import Threads, limited
from bot.formats import Kind
from bot.given import Given, given
from bot.leftovers import Dormant, Leftovers
from bot.people import LookUpFailed, People
from bot.principal import Principal
from bot.rights import Rights, storable
from bot.session.edits import NotEdited
from bot.session.ready import ReadyAgent
from bot.settling import counted_events, giver, giver_json, settled_events, shown_name
from bot.standing import givers, joins
from bot.telling import ELSEWHERE, ENDED, NO_LINK_HERE, NOT_ALLOWED, NOT_YOURS, UNCHANGED_OVERRIDE, UNKNOWN_AUTHOR, link, tell
from channels.events import Place
from durable_core import codec
from durable_core.crypto import payload_digest
from durable_core.errors import NotFound, Stranded
from durable_core.ids import new_id
from durable_core.model import (
    AnswerPolicy,
    AnswerReceipt,
    AnswerStatus,
    Interaction,
    Prompt,
    PromptAnswer,
    PromptOutcome,
    RunStatus,
    Verdict,
)
from durable_core.retry import RetryPolicy
from durable_core.store import Store

log = logging.getLogger("moorings.answers")

UNREADABLE_MS: Final = 5_000
"""How long an answer that a newer version asked for is left to that version before it is looked at again."""
FORGOTTEN: Final = "What you changed was deleted before it was looked at. Answer again."
MOST_A_MINUTE: Final = 10
"""How often within a minute somebody may be refused one request, or be made a link: each leaves rows, and a message to them."""
WAIT_SECONDS: Final = 2.0
"""How long a caller waits for an answer that a worker has to decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How an answer came: over which interface, from where, and where its giver is told, alone, if it settles nothing."""

    via: str
    source: str
    """Within which `key` names the answer: the same key again is the same answer."""
    key: str
    of: str = ""
    """Tells a repeat from another payload where the key covers more than this answer."""
    at: tuple[str, str] | None = None
    """The channel and the address where a button was pressed: the prompt must have been put there."""
    tell_at: tuple[str, str] | None = None
    where: str = ""
    """From where, for the audit; else it is `at`."""
    submission_id: str | None = None
    """The answer's id, where it was made before."""
    hands_over: bool = False
    """A link that is asked for is the answer to this very call, and told nowhere else."""
    together: tuple[str, ...] = ()
    """The ids of all answers of one click: what came of them is told in one."""

    @property
    def place(self) -> str:
        """Name where it came from."""
        return self.where or " ".join(self.at or self.tell_at or (self.via,))


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

    @property
    def rights(self) -> Rights:
        """Who may answer."""
        return Rights(store=self.store, agents=self.agents, threads=self.threads, seconds=self.policy_seconds, groups=self.groups)

    async def admit(
        self,
        prompt_id: str,
        option_id: str,
        *,
        principal: Principal,
        place: Place,
        way: Way,
        run_id: str | None = None,
        words: str = "",
        fields: Mapping[str, str] | None = None,
        edits: Mapping[str, JsonValue] | None = None,
        override: str | None = None,
    ) -> AnswerReceipt:
        """Accept somebody's answer; settled at once when who may answer is data, else decided by a worker.

        ``option_id`` "" stands for ``words`` of their own, which are a note otherwise. ``fields`` are those of a form, ``edits``
        arguments that are changed with an approval: a worker then asks the gates again. ``override`` is the reason of somebody
        who has the right to answer whatever the prompt says; the caller has checked it.

        Raises: NotFound (no such prompt), Conflict, Stranded (a newer version asked, and runs: it has to take the answer).
        """
        prompt = await self.store.prompt(prompt_id)
        if run_id is not None and not belongs(prompt, run_id):
            raise NotFound("prompt", prompt_id)
        left = await self._left(prompt)
        if left is None:
            readable(prompt)
        body = prompt_body(prompt)
        read = given(body, option_id, words=words, fields=fields, edits=edits, tool=await self.rights.editable(prompt))
        refused = left or await self._over(prompt) or (None if prompt.outcome is not None else read.refused)
        if left is None and way.at is not None and not await self.put_at(prompt, way.at):
            refused = ELSEWHERE
        if refused is None and override is None:
            refused = await self._denied_at_once(prompt, principal, place)
        if refused is None and read.aside:
            refused = _no_link(prompt, principal, way, override)
        told, not_made = await self._note(prompt, read if left is None else replace(read, edits={}), override)
        refused = refused or not_made
        # whom a list names is looked up too, where the platform has to be asked who they are: access may say no
        judge = "edits" in told or (prompt.policy is AnswerPolicy.LISTED and override is None and self.people.asks(principal))
        at_once = not judge and (prompt.policy is not AnswerPolicy.FUNCTION or override is not None)
        submission_id = way.submission_id or new_id("sub")
        owed = tell(way.tell_at, way.together or (submission_id,), principal)
        if read.aside and refused is None and prompt.outcome is None and way.at is not None:
            owed = link(prompt, way.at, principal)
        answer = PromptAnswer(
            source=way.source,
            key=way.key,
            digest=_digest(prompt_id, read, way, override),
            submission_id=submission_id,
            prompt_id=prompt_id,
            run_id=None,
            option_id=option_id,
            outcome=read.outcome,
            note=codec.encode(told) if told else None,
            principal=principal.id,
            name=shown_name(principal, body),
            via=way.via,
            body=codec.encode({**giver_json(principal, place, way.tell_at, way.together), "edited": "edits" in told}),
            refused=refused,
            tell=owed,
            events=settled_events(prompt, principal, read.outcome, reason=override) if at_once and not read.aside else (),
            counted=counted_events(prompt, principal) if at_once else (),
            where=way.place,
            judge=judge,
            override=override is not None,
            aside=read.aside,
            most=None if override is not None else MOST_A_MINUTE,
        )
        return await self.store.answer(answer)

    async def _note(self, prompt: Prompt, read: Given, override: str | None) -> tuple[dict[str, JsonValue], str | None]:
        """Return what is kept of an answer besides its option, and why what it changes can't be."""
        told: dict[str, JsonValue] = {"text": read.words} if read.words else {}
        if override is not None:
            told["reason"] = override
        if not read.edits or prompt.outcome is not None:
            return told, None
        made = await self.rights.edited(prompt, read.edits)
        if isinstance(made, NotEdited):
            return told, made.reason
        if made.edits and override is not None:
            return told, UNCHANGED_OVERRIDE
        return told | ({"edits": dict(made.edits), "binding": made.binding} if made.edits else {}), None

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

    async def _over(self, prompt: Prompt) -> str | None:
        """Say that the conversation has ended where that is why a prompt was withdrawn."""
        if prompt.outcome is not PromptOutcome.CANCELLED or prompt.settled_by is not None:
            return None
        return ENDED if (await self.store.run(prompt.run_id)).status is RunStatus.ENDED else None

    async def put_at(self, prompt: Prompt, at: tuple[str, str]) -> bool:
        """Whether a copy of the prompt's card was owed to this address: a button's value alone gives no right.

        The copies of a shared card are filed under its first prompt.
        """
        sql = "SELECT 1 FROM moor_outbox WHERE prompt_id = :card AND channel = :channel AND address = :address LIMIT 1"
        card = prompt.group or prompt.prompt_id
        return bool(await self.store.rows(sql, {"card": card, "channel": at[0], "address": at[1]}))

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
            return NOT_ALLOWED
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
        principal, place, tell_at, together = giver(who)
        lapsed: tuple[str, ...] = ()
        try:
            principal, place = await self.people.resolve(principal, place, tell_at[1] if tell_at is not None else None)
            refusal = self._refusal(interaction, principal, place, edited_call=bool(who.get("edited")))
            reason = (await limited(refusal, self.policy_seconds)).value()
            if reason is None and joins(interaction):
                lapsed = await self._lapsed(interaction)
        except Stranded:  # a vote is of newer code
            await self.store.postpone(interaction, until=await self.store.now() + UNREADABLE_MS)
            return
        except LookUpFailed as error:
            if not self.look_ups.exhausted(interaction.attempts):
                await self._look_up_later(interaction, error)
                return
            reason = UNKNOWN_AUTHOR
        except Exception:
            log.exception("who may answer %s could not be decided; refused", answer.prompt_id)
            reason = NOT_ALLOWED
        prompt, allowed = interaction.prompt, reason is None
        await self.store.decide(
            Verdict(
                interaction_id=interaction.interaction_id,
                epoch=interaction.epoch,
                allowed=allowed,
                level=prompt.level,
                reason=reason,
                events=settled_events(prompt, principal, answer.outcome) if allowed else (),
                counted=counted_events(prompt, principal) if allowed else (),
                name=shown_name(principal, prompt_body(prompt)),
                tell=tell(tell_at, together or (interaction.interaction_id,), principal),
                lapsed=lapsed,
            )
        )

    async def _lapsed(self, interaction: Interaction) -> tuple[str, ...]:
        """Name those whose earlier yes counts no more: they may not answer by now. Every doubt excludes. Raises: LookUpFailed."""
        prompt, gone = interaction.prompt, []
        for voter, (principal, place, at, _) in (await givers(self.store, prompt)).items():
            try:
                known = await self.people.resolve(principal, place, at[1] if at is not None else None)
                refusal = self._may_not(prompt, interaction.run_name, *known, outcome=interaction.answer.outcome)
                stands = (await limited(refusal, self.policy_seconds)).value() is None
            except LookUpFailed:
                if not self.look_ups.exhausted(interaction.attempts):
                    raise
                stands = False
            except Exception:
                log.exception("whether %s still counts for %s could not be decided; it does not", voter, prompt.prompt_id)
                stands = False
            gone += [] if stands else [voter]
        return tuple(gone)

    async def _look_up_later(self, interaction: Interaction, error: LookUpFailed) -> None:
        log.warning("who answered %s could not be looked up yet: %s", interaction.answer.prompt_id, error.__cause__ or error)
        wait = self.look_ups.delay_ms(interaction.attempts, retry_after=error.retry_after)
        await self.store.postpone(interaction, until=await self.store.now() + wait)

    async def _refusal(self, interaction: Interaction, principal: Principal, place: Place, *, edited_call: bool) -> str | None:
        prompt, answer = interaction.prompt, interaction.answer
        refused = await self._may_not(prompt, interaction.run_name, principal, place, outcome=answer.outcome)
        if refused is not None:
            return refused
        told = formats.read(Kind.NOTE, answer.note, run_id=prompt.run_id) if answer.note is not None else {}
        if not told.get("edits"):
            return FORGOTTEN if edited_call else None
        return await self.rights.edit_refusal(prompt, interaction.run_name, principal, told)

    async def _may_not(
        self, prompt: Prompt, run_name: str, principal: Principal, place: Place, *, outcome: PromptOutcome
    ) -> str | None:
        """Why somebody may not answer: neither here at all, nor this."""
        decision = await decide_access(self.access, principal, place, Action.CLICK, threads=self.threads)
        if isinstance(decision, Deny):
            return decision.text
        return await self.rights.refusal(prompt, run_name, principal, outcome=outcome)


def _no_link(prompt: Prompt, principal: Principal, way: Way, override: str | None) -> str | None:
    """Why somebody gets no link: it connects the account of who asked, so nobody else may have it, whatever their rights."""
    if prompt.outcome is not None:  # whoever settled it is named
        return None
    if override is not None or principal.anonymous or principal.id != prompt.requester:
        return NOT_YOURS
    return NO_LINK_HERE if way.at is None and not way.hands_over else None


def belongs(prompt: Prompt, session_id: str) -> bool:
    """Whether a prompt is of a session: of its own run, or of one that works for it."""
    return session_id in (prompt.run_id, prompt_body(prompt).get("session_id"))


def _digest(prompt_id: str, read: Given, way: Way, override: str | None) -> bytes:
    """Tell one answer from another, by what was given alone: what comes of it must not matter to a repeat."""
    more: dict[str, JsonValue] = {"edits": dict(read.edits) if storable(read.edits) else None} if read.edits else {}
    more |= {"override": override} if override is not None else {}
    told: dict[str, JsonValue] = {"prompt": prompt_id, "option": read.option_id, "text": read.words, "of": way.of}
    return payload_digest(codec.encode({**told, **more}))
