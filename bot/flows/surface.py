"""Where runs of workflow calls show what they ask and how far they are: the conversation that started them.

What lives here: cards and words to the session, as rows of the run's own commit. What does not: answering, the session's side
of it (bot/turn/children.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic import JsonValue

from bot.answerers import Group, describe_by, listed
from bot.display import show
from bot.flows.origin import Conversation, read_origin
from bot.turn.posts import reminder
from bot.turn.questions import BUTTONS
from bot.turn.signing import Account, Origin, sign_in_body
from bot.turn.state import Purpose
from bot.turn.view import open_prompt
from durable_core import codec
from durable_core.engine.surface import PROMPT_KIND, Alone, Asker, Put, expires_at, remind_at
from durable_core.ids import new_id
from durable_core.model import INTERNAL, AnswerPolicy, OutboxDraft, Prompt, PromptDraft, PromptOutcome
from durable_core.operations import AskOptions

SHOWN: Final = 1_000
"""Characters of progress that are told."""


@dataclass(frozen=True, slots=True)
class InConversation:
    """Shows runs in the conversations they come from; `judged_by_code` says that an app's own access policy is asked as well.

    A run that no conversation started keeps its questions to itself.
    """

    judged_by_code: bool = False

    def ask(self, asker: Asker, op: str, question: AskOptions, prompt_id: str) -> Put:
        """Open a question, put its card into the conversation, and tell the session."""
        home = read_origin(asker.origin)
        if home is None:
            return Alone().ask(asker, op, question, prompt_id)
        if question.about is not None:
            return self._sign_in(asker, home, question, op=op, prompt_id=prompt_id)
        who = _Who.of(question.by, home, judged_by_code=self.judged_by_code)
        body = _body(asker, home, question, op=op, prompt_id=prompt_id, who=who)
        prompt = PromptDraft(
            prompt_id=prompt_id,
            kind=PROMPT_KIND,
            call_id=op,
            body=codec.encode(body),
            requester=home.requester.id,
            policy=who.policy,
            expires_at=expires_at(asker, question),
            remind_at=remind_at(asker, question),
            answerers=who.answerers,
            asked=who.words,
        )
        told = _tell(home, asker, {"kind": "asked", "request": _shown(body, who)})
        return Put(prompt=prompt, outbox=(*_card(home, prompt_id), told))

    def _sign_in(self, asker: Asker, home: Conversation, question: AskOptions, *, op: str, prompt_id: str) -> Put:
        """Ask whoever it works for to connect an account: in private, while the others are told who is waited for."""
        about, expires = question.about, expires_at(asker, question)
        made = sign_in_body(
            prompt_id,
            Account(
                connection=str(about["connection"]),
                title=str(about["title"]),
                scopes=tuple(str(scope) for scope in about["scopes"]),
                reason=about["reason"],
            ),
            Origin(
                requester=home.requester,
                agent=home.agent,
                session_id=home.session_id,
                turn_id=home.turn_id,
                channel=home.channel,
                address=home.address,
            ),
            asked_for=(home.tool,),
            action=None,
            expires_at=expires,
        )
        body: dict[str, JsonValue] = {**made, "call_id": home.call_id, "op": op}
        prompt = PromptDraft(
            prompt_id=prompt_id,
            kind=Purpose.SIGN_IN.value,
            call_id=op,
            body=codec.encode(body),
            requester=home.requester.id,
            policy=AnswerPolicy.REQUESTER,
            expires_at=expires,
            remind_at=remind_at(asker, question),
            asked=home.requester.name,
        )
        told = _tell(home, asker, {"kind": "asked", "request": {**body, "answerers": None}})
        return Put(prompt=prompt, outbox=(*_to_one(home, prompt_id), told))

    def remind(self, asker: Asker, prompt: Prompt | PromptDraft) -> tuple[OutboxDraft, ...]:
        """Remind beside the card, for the same readers, and tell the session."""
        home = read_origin(asker.origin)
        if home is None:
            return ()
        told = _tell(home, asker, {"kind": "reminded", "request_id": prompt.prompt_id})
        if home.channel is None or home.address is None:
            return (told,)
        about = cast("dict[str, Any]", codec.decode(prompt.body))
        # whom it names is called, even where the app's own policy is asked as well
        named = AnswerPolicy.LISTED if prompt.answerers else AnswerPolicy.REQUESTER if about.get("by") is None else prompt.policy
        asked = open_prompt(
            about,
            expires_at=prompt.expires_at,
            remind_at=None,
            policy=named,
            answerers=prompt.answerers,
            asked=prompt.asked,
        )
        body: dict[str, JsonValue] = {"kind": "notice", "text": reminder(asked), "mentions": list[JsonValue](asked.mentions)}
        if prompt.kind == Purpose.SIGN_IN.value and not home.direct:
            body["private_to"] = home.requester.id
        notice = OutboxDraft(delivery_id=new_id("dlv"), channel=home.channel, address=home.address, body=codec.encode(body))
        return notice, told

    def resolve(self, asker: Asker, prompt_id: str, outcome: PromptOutcome, by: str | None) -> tuple[OutboxDraft, ...]:
        """Tell the session that nobody has to answer any more."""
        home = read_origin(asker.origin)
        if home is None:
            return ()
        about: dict[str, JsonValue] = {"request_id": prompt_id, "outcome": outcome.value, "by": by}
        return (_tell(home, asker, {"kind": "resolved", **about}),)

    def show(self, asker: Asker, values: Sequence[Any]) -> tuple[OutboxDraft, ...]:
        """Tell the session how far the run is; of several values the last counts."""
        home = read_origin(asker.origin)
        if home is None:
            return ()
        value = values[-1]
        text = value if isinstance(value, str) else show(value)
        return (_tell(home, asker, {"kind": "progress", "text": text[:SHOWN]}),)

    def end(self, asker: Asker, reason: str) -> tuple[OutboxDraft, ...]:
        """Owe nothing more: the session learns of the end as the run's parent."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Who:
    """Who may answer: nobody named is whoever asked."""

    policy: AnswerPolicy
    answerers: tuple[str, ...] = ()
    words: str
    by: JsonValue = None

    @classmethod
    def of(cls, by: Any, home: Conversation, *, judged_by_code: bool) -> _Who:
        if isinstance(by, dict) and set(by) == {"group"}:
            by = Group(str(by["group"]))
        if isinstance(by, Group):
            return cls(policy=AnswerPolicy.FUNCTION, words=describe_by(by), by={"group": by.name})
        names = (by,) if isinstance(by, str) else listed(by)
        if names is not None:
            policy = AnswerPolicy.FUNCTION if judged_by_code else AnswerPolicy.LISTED
            return cls(policy=policy, answerers=names, words=describe_by(list(names)), by=list(names))
        policy = AnswerPolicy.FUNCTION if judged_by_code else AnswerPolicy.REQUESTER
        return cls(policy=policy, words=home.requester.name)


def _body(asker: Asker, home: Conversation, question: AskOptions, *, op: str, prompt_id: str, who: _Who) -> dict[str, JsonValue]:
    options: list[JsonValue] = [
        {
            "id": option.id,
            "label": option.label,
            "description": option.description,
            "style": option.style or "plain",
            "outcome": PromptOutcome.ANSWERED.value,
        }
        for option in question.options
    ]
    return {
        "request_id": prompt_id,
        "kind": PROMPT_KIND,
        "session_id": home.session_id,
        "turn_id": home.turn_id,
        "call_id": home.call_id,
        "op": op,
        "text": question.text,
        "detail": f"{who.words} may answer. It goes on as {home.requester.name}.",
        "waiting_for": who.words,
        "action": None,
        "fields": [],
        "evidence": [],
        "options": options,
        "display": "select" if len(options) > BUTTONS else "buttons",
        "allow_freeform": question.allow_freeform,
        "requester": home.requester.to_json(),
        "by": who.by,
        "on_expiry": "deny",
        "expires_at": expires_at(asker, question),
        "by_approval": False,
    }


def _shown(body: dict[str, JsonValue], who: _Who) -> dict[str, JsonValue]:
    """A question as the session's readers see it."""
    answerers: list[JsonValue] | None = [*who.answerers] if who.answerers else None
    return {**body, "answerers": answerers}


def _to_one(home: Conversation, prompt_id: str) -> tuple[OutboxDraft, ...]:
    """Put a card to who asked alone; the others of the place see who is waited for."""
    if home.direct:
        return _card(home, prompt_id)
    return *_card(home, prompt_id, status=True), *_card(home, prompt_id, private_to=home.requester.id)


def _card(home: Conversation, prompt_id: str, **more: JsonValue) -> tuple[OutboxDraft, ...]:
    if home.channel is None or home.address is None:
        return ()
    body = codec.encode({"kind": "card", **more})
    return (OutboxDraft(delivery_id=new_id("dlv"), channel=home.channel, address=home.address, body=body, prompt_id=prompt_id),)


def _tell(home: Conversation, asker: Asker, told: dict[str, JsonValue]) -> OutboxDraft:
    """Name the call: the run that says it may be one that the call's run started."""
    body = codec.encode({**told, "run_id": asker.run_id, "call_id": home.call_id})
    return OutboxDraft(delivery_id=new_id("dlv"), channel=INTERNAL, address=home.session_id, body=body)
