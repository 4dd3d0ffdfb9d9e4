"""A session while this worker holds it: history, state, inbox and records, as far as they are known.

What lives here: loading and refreshing. What does not: deciding, doing, committing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from bot import formats
from bot.formats import Kind
from bot.history import Item, ResultItem, from_json
from bot.model import ModelReply, reply_from_json
from bot.people import LOOK_UP_BUDGET_MS, LookUpFailed
from bot.session.signing import Refusal
from bot.turn.state import (
    Cancel,
    Consent,
    FromChild,
    Input,
    Limits,
    Message,
    MessageBody,
    Response,
    State,
    Turn,
    Undelivered,
    body_from_json,
    state_from_json,
)
from bot.turn.view import Answering, OpenPrompt, View, open_prompt
from bot.undelivered import undelivered_card
from durable_core.model import MAX_CHARGED, Claim, Command, CommandKind, Prompt, PromptOutcome, Record, RecordKind
from durable_core.store import Store
from durable_core.worker import Held

log = logging.getLogger("moorings.session")


@dataclass(frozen=True, slots=True)
class Judged:
    """A message with all that is known of its author and place, and why the author may not speak there, or None."""

    body: MessageBody
    denied: str | None


Judge = Callable[[MessageBody, bool], Awaitable[Judged]]
"""Finds out who wrote a message and whether they may; the flag says that a turn is running."""

REPLY_KEY = "reply"
ANSWER_KEY = "answer"
"""The record of a message that was taken for an answer."""

UNKNOWN_AUTHOR = "This bot could not find out whether you may use it here. Try again later."


def refused_key(call_id: str) -> str:
    """Name the record of a token that was refused while a call ran."""
    return f"refused:{call_id}"


def again_key(call_id: str) -> str:
    """Name the record that a call runs again since there is a newer token than the one that was refused."""
    return f"again:{call_id}"


@dataclass(slots=True)
class LiveSession:
    """What is known of a session under one claim; changes as steps are committed."""

    held: Held
    history: list[Item]
    state: State
    step_no: int
    inbox: dict[int, Input] = field(default_factory=dict)
    seen: int = 0
    open: dict[str, OpenPrompt] = field(default_factory=dict)
    answered: dict[str, OpenPrompt] = field(default_factory=dict)
    asked_after: dict[str, int] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    unstarted: set[str] = field(default_factory=set)
    """Calls whose start was recorded under this claim, but that were stopped before their body."""
    now: int = 0
    attempt: int = 1
    charged: int = 0
    last_error: str | None = None
    retry_at: int | None = None
    look_up_at: int | None = None
    """When to ask again who wrote, after the platform did not say: a wait, no charged attempt."""
    announced: bool = False
    """`step.started` of this attempt was written."""
    redactions: int = 0
    """How many redactions the history and the inbox have seen; a commit is refused when there are more."""
    worked: bool = False
    """Something was written under this claim."""

    @property
    def run_id(self) -> str:
        """The session's id."""
        return self.held.claim.run_id

    @property
    def epoch(self) -> int:
        """The claim's fence."""
        return self.held.claim.epoch

    def view(self, limits: Limits) -> View:
        """What the next decision looks at."""
        exhausted = (self.last_error or "every attempt failed") if self.charged >= MAX_CHARGED else None
        return View(
            state=self.state,
            inbox=tuple(self.inbox[seq] for seq in sorted(self.inbox)),
            open=self.open,
            answered=self.answered,
            asked_after=self.asked_after,
            now=self.now,
            exhausted=exhausted,
            replied=REPLY_KEY in self.records,
            answering=self.answering(),
            begun=bool(self.records) or self.announced or self.attempt > 1,
            deadline_at=self.held.claim.deadline_at,
            retry_at=self.retry_at,
            limits=limits,
        )

    # ── records of the pending step ──

    def answering(self) -> Answering | None:
        """The message that the pending step has taken for an answer."""
        record = self.records.get(ANSWER_KEY)
        if record is None:
            return None
        body = formats.read(Kind.RECORD, record.body, run_id=self.run_id)
        return Answering(seq=int(body["seq"]), prompt_id=str(body["prompt_id"]), option_id=str(body["option_id"]))

    def reply(self) -> ModelReply | None:
        """The model reply that the pending step has recorded."""
        record = self.records.get(REPLY_KEY)
        return None if record is None else reply_from_json(formats.read(Kind.RECORD, record.body, run_id=self.run_id)["reply"])

    def result(self, call_id: str) -> ResultItem | None:
        """The result that the pending step has recorded for a call."""
        record = self.records.get(f"result:{call_id}")
        if record is None:
            return None
        return cast("ResultItem", from_json(formats.read(Kind.RECORD, record.body, run_id=self.run_id)))

    def started(self, call_id: str) -> bool:
        """Whether the call began and has no result."""
        began = f"started:{call_id}" in self.records and call_id not in self.unstarted
        return began and f"result:{call_id}" not in self.records

    def refusal(self, call_id: str) -> Refusal | None:
        """The token that was refused while the call ran, if that is how the body ended."""
        record = None if again_key(call_id) in self.records else self.records.get(refused_key(call_id))
        return None if record is None else Refusal.from_json(formats.read(Kind.RECORD, record.body, run_id=self.run_id))

    def begun(self, call_id: str, *, recorded: bool) -> int:
        """In how many attempts of this step before this one the call began.

        ``recorded`` says that its start is recorded; of any other call, it is in how many it could have begun.
        """
        if recorded and not self.started(call_id):
            return 0
        record = self.records.get(f"started:{call_id}") or self.records.get(REPLY_KEY)
        return self.attempt - (1 if record is None else record.attempt)

    @property
    def unjudged(self) -> bool:
        """Whether somebody's message waits until it is known who they are."""
        return any(isinstance(entry, Message) and entry.unjudged for entry in self.inbox.values())

    # ── what comes in ──

    async def take_in(self, claim: Claim, judge: Judge) -> None:
        """Bring in what a claim or a refresh read: commands, prompts, records."""
        self.now = claim.now
        self.retry_at = claim.retry_at
        self.records = {record.key: record for record in claim.records}
        self.open = {prompt.prompt_id: _open(prompt, self.run_id) for prompt in claim.prompts if prompt.outcome is None}
        self.answered = {prompt.prompt_id: _open(prompt, self.run_id) for prompt in claim.prompts if prompt.outcome is not None}
        self.asked_after = {prompt.prompt_id: prompt.created_seq for prompt in claim.prompts}
        prompts = {prompt.prompt_id: prompt for prompt in claim.prompts}
        await self.take_commands(claim.commands, prompts, judge, turn=self.state.turn)
        self.seen = max(self.seen, claim.signals.inbox_seq)

    async def take_commands(
        self, commands: Sequence[Command], prompts: dict[str, Prompt], judge: Judge, *, turn: Turn | None
    ) -> None:
        """Bring in new inbox entries; a cancel that names no turn means the one that ran when it came.

        Raises: Stranded at what a newer version wrote; that and what follows stays unseen.
        """
        for command in commands:
            entry = self.inbox.get(command.seq)
            if entry is None:
                entry = _input(command, prompts, self.run_id)
                if isinstance(entry, Cancel) and entry.turn_id is None and turn is not None:
                    entry = replace(entry, turn_id=turn.turn_id)
                if isinstance(entry, Message):
                    entry = replace(entry, unjudged=True)
            self.inbox[command.seq] = entry
            self.seen = max(self.seen, command.seq)
        # side by side: slow look-ups of others must not add up before somebody's own message
        waiting = [entry for entry in self.inbox.values() if isinstance(entry, Message) and entry.unjudged]
        for judged in await asyncio.gather(*(self._judged(entry, judge) for entry in waiting)):
            self.inbox[judged.seq] = judged

    async def _judged(self, message: Message, judge: Judge) -> Message:
        """Find out whether the author may speak. A look-up that failed is asked again, the last time it refuses (CORE 14)."""
        try:
            judged = await judge(message.body, self.state.turn is not None)
            return replace(message, body=judged.body, denied=judged.denied, unjudged=False)
        except LookUpFailed as error:
            waited = self.now - message.at
            if waited >= LOOK_UP_BUDGET_MS:
                return replace(message, denied=UNKNOWN_AUTHOR, unjudged=False)
            log.warning("%s: who wrote %s could not be looked up; asking again", self.run_id, message.submission_id)
            again = self.now + error.again_in_ms(waited)
            self.look_up_at = again if self.look_up_at is None else min(self.look_up_at, again)
            return message
        except Exception:
            log.exception("%s: whether %s may speak could not be decided", self.run_id, message.submission_id)
            last = self.charged + 1 >= MAX_CHARGED
            return replace(message, denied=UNKNOWN_AUTHOR if last else None, unjudged=not last)


def _input(command: Command, prompts: dict[str, Prompt], run_id: str) -> Input:
    body = formats.read(Kind.COMMAND, command.body, run_id=run_id)
    if command.kind is CommandKind.MESSAGE:
        return Message(seq=command.seq, submission_id=command.submission_id, body=body_from_json(body), at=command.at)
    if command.kind is CommandKind.CANCEL:
        return Cancel(seq=command.seq, submission_id=command.submission_id, turn_id=body.get("turn_id"))
    if command.kind is CommandKind.SIGNAL and body.get("run_id"):
        return FromChild(
            seq=command.seq,
            submission_id=command.submission_id,
            run_id=str(body["run_id"]),
            call_id=str(body.get("call_id") or body.get("op") or ""),
            kind=str(body["kind"]),
            told=body,
        )
    if command.kind is CommandKind.SIGNAL:
        delivery_id, error = undelivered_card(body)
        return Undelivered(seq=command.seq, submission_id=command.submission_id, delivery_id=delivery_id, error=error)
    prompt = prompts.get(str(body["prompt_id"]))
    words = prompt.note if prompt is not None else None
    note = formats.read(Kind.NOTE, words, run_id=run_id) if words is not None else {}
    consent = Consent(
        principal=(prompt.settled_by if prompt else None) or command.principal,
        name=(prompt.settled_name if prompt else None) or command.principal,
        at=(prompt.settled_at if prompt else None) or command.at,
        note=str(note.get("text", "")),
        edits=note.get("edits"),
        # forgotten between the look and the vote: what they had changed is not known any more, and the yes fits nothing
        binding="forgotten" if note.get("forgotten") else str(note.get("binding", "")),
    )
    return Response(
        seq=command.seq,
        submission_id=command.submission_id,
        prompt_id=str(body["prompt_id"]),
        outcome=PromptOutcome(body["outcome"]),
        consent=consent,
        label=_open(prompt, run_id).label(str(body.get("option_id") or "")) if prompt is not None else "",
    )


def _open(prompt: Prompt, run_id: str) -> OpenPrompt:
    return open_prompt(
        formats.read(Kind.PROMPT, prompt.body, run_id=run_id),
        expires_at=prompt.expires_at,
        remind_at=prompt.remind_at,
        policy=prompt.policy,
        answerers=prompt.answerers,
        asked=prompt.asked,
        level=prompt.level,
    )


class WarmHistories:
    """Folded histories of sessions this process advanced lately, so that a turn doesn't read them again.

    An entry is only as good as its position: steps change only by redactions, so an equal `step_no` and an equal number of
    those mean an equal history.
    """

    def __init__(self, store: Store, *, limit: int = 256) -> None:
        self._store = store
        self._limit = limit
        self._entries: OrderedDict[str, tuple[int, int, list[Item], State]] = OrderedDict()

    async def load(self, held: Held) -> LiveSession:
        """Fold a claimed session's history, from where it is warm."""
        claim = held.claim
        position, redactions, history, state = self._entries.pop(claim.run_id, (0, 0, [], State()))
        if position > claim.step_no or redactions != claim.redactions:
            position, history, state = 0, [], State()
        if position < claim.step_no:
            state = await self._fold(claim.run_id, position, history, state)
        return LiveSession(
            held=held,
            history=history,
            state=state,
            step_no=claim.step_no,
            now=claim.now,
            attempt=claim.attempt,
            charged=claim.charged,
            last_error=claim.last_error,
            redactions=claim.redactions,
        )

    async def refresh(self, session: LiveSession, judge: Judge) -> None:
        """Read a held session again; where something of it was redacted, its history and its inbox too."""
        claim = await self._store.refresh(session.run_id, session.epoch)
        if claim.redactions != session.redactions:
            session.history, session.inbox = [], {}
            session.state = await self._fold(claim.run_id, 0, session.history, State())
            session.redactions = claim.redactions
        await session.take_in(claim, judge)

    async def _fold(self, run_id: str, position: int, history: list[Item], state: State) -> State:
        for step in await self._store.steps(run_id, start=position):
            output = formats.read(Kind.STEP, step.output, run_id=run_id)
            history.extend(from_json(item) for item in output["items"])
            state = state_from_json(output["state"])
        return state

    def keep(self, session: LiveSession) -> None:
        """Remember what a released session knows."""
        self._entries[session.run_id] = (session.step_no, session.redactions, session.history, session.state)
        self._entries.move_to_end(session.run_id)
        while len(self._entries) > self._limit:
            self._entries.popitem(last=False)


def is_result(record: Record) -> bool:
    """Whether a record ends a call."""
    return record.kind is RecordKind.RESULT
