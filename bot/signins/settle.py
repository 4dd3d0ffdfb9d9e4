"""What an attempt leads to in the conversation: its prompt settled, or a private line that says what went wrong.

What lives here: the answer that settles, and the line. What does not: what the attempt came to (signins.py), cards (bot/turn/).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from bot.cards import prompt_body
from bot.display import literal
from bot.principal import Principal
from bot.settling import giver_json, settled_events
from bot.signins.attempt import Attempt, Proof, Stage
from bot.turn.signing import CONNECT, CONNECTED, DECLINED
from channels.events import Place
from durable_core import codec
from durable_core.crypto import payload_digest
from durable_core.errors import ContentGone, NotFound, SessionEnded
from durable_core.ids import new_id
from durable_core.model import AnswerReceipt, OutboxDraft, Prompt, PromptAnswer, PromptOutcome
from durable_core.store import Store

log = logging.getLogger("moorings.signins")

SOURCE: Final = "connect"
_PROVEN: Final = {
    Proof.PLATFORM: "proven by the platform",
    Proof.EMAIL: "proven by e-mail",
    Proof.CODE: "proven by a code alone",
}
ENDING: Final = frozenset({"scopes"})
"""Faults that end the request: another try asks the same person for the same."""
SILENT: Final = frozenset({"over"})
"""Faults that the conversation knows of already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """Tells whoever waits for an attempt what came of it; once, however often it is told."""

    store: Store

    async def tell(self, attempt: Attempt) -> None:
        """Settle what waits for an ended attempt, or say in private why it can be tried again. Raises: Unavailable."""
        if not attempt.prompt_id or attempt.fault in SILENT:
            return
        try:
            prompt = await self.store.prompt(attempt.prompt_id)
            receipt = await self.store.answer(_answer(prompt, attempt))
        except (NotFound, ContentGone, SessionEnded):
            log.info("sign-in %s: nobody waits for it any more", attempt.attempt_id)
            return
        log.info("sign-in %s: %s, told (%s)", attempt.attempt_id, attempt.stage.value, receipt.status.value)

    async def line(self, attempt: Attempt, words: str) -> None:
        """Say something in private that ends nothing, once an attempt."""
        if attempt.prompt_id:
            prompt = await self.store.prompt(attempt.prompt_id)
            await self.store.answer(_line(prompt, key=f"{attempt.attempt_id}#line", words=words))

    async def over(self, attempt: Attempt) -> Prompt | None:
        """Return the prompt if it is settled already; None while somebody waits, or where nothing ever did. Raises: NotFound."""
        if not attempt.prompt_id:
            return None
        prompt = await self.store.prompt(attempt.prompt_id)
        return prompt if prompt.outcome is not None else None

    async def unasked(self, prompt: Prompt, *, key: str, error: str) -> AnswerReceipt:
        """Settle a prompt that can't be put to the one whom it asks."""
        body = prompt_body(prompt)
        words = f"{body['requester']['name']} could not be asked privately to connect {body['title']}: {error}."
        note: dict[str, JsonValue] = {"text": words}
        denied = PromptOutcome.DENIED
        return await self.store.answer(_built(prompt, key=key, option=DECLINED, outcome=denied, note=note, where="not delivered"))

    async def pass_over(self, prompt: Prompt, account: str, key: str) -> AnswerReceipt:
        """Settle a prompt without an attempt: the account was connected meanwhile."""
        return await self.store.answer(_connected(prompt, account=account, key=key, where="connected before"))


def _answer(prompt: Prompt, attempt: Attempt) -> PromptAnswer:
    where = _PROVEN[attempt.proof]
    if attempt.stage is Stage.CONNECTED:
        return _connected(prompt, account=attempt.account, key=attempt.attempt_id, where=where)
    if attempt.stage is Stage.DECLINED or attempt.fault in ENDING:
        note: dict[str, JsonValue] = {"text": attempt.reason}
        where = _denied(attempt, where)
        return _built(prompt, key=attempt.attempt_id, option=DECLINED, outcome=PromptOutcome.DENIED, note=note, where=where)
    return _line(prompt, key=attempt.attempt_id, words=attempt.reason)


def _line(prompt: Prompt, *, key: str, words: str) -> PromptAnswer:
    return _built(prompt, key=key, option=CONNECT, outcome=PromptOutcome.DENIED, aside=words, where="sign-in")


def _denied(attempt: Attempt, where: str) -> str:
    """Whether the one who said no had been proven, or only held the link."""
    return "by the link, not proven" if attempt.fault == "link" else where


def _connected(prompt: Prompt, *, account: str, key: str, where: str) -> PromptAnswer:
    title = str(prompt_body(prompt)["title"])
    words = f"{title} is connected as {account}." if account else f"{title} is connected."
    note: dict[str, JsonValue] = {"account": account, "text": words}
    return _built(prompt, key=key, option=CONNECTED, outcome=PromptOutcome.APPROVED, note=note, where=where)


def _built(
    prompt: Prompt,
    *,
    key: str,
    option: str,
    outcome: PromptOutcome,
    where: str,
    note: dict[str, JsonValue] | None = None,
    aside: str = "",
) -> PromptAnswer:
    body = prompt_body(prompt)
    requester = Principal.from_json(body["requester"])
    channel, address = body.get("channel"), body.get("address")
    at = (str(channel), str(address)) if channel and address else None
    tell = None
    if aside and at is not None:
        body_of_it: JsonValue = {"kind": "notice", "text": literal(aside), "private_to": requester.id}
        tell = OutboxDraft(delivery_id=new_id("dlv"), channel=at[0], address=at[1], body=codec.encode(body_of_it))
    return PromptAnswer(
        source=SOURCE,
        key=key,
        digest=payload_digest(f"{key} {option}".encode()),
        submission_id=new_id("sub"),
        prompt_id=prompt.prompt_id,
        run_id=None,
        option_id=option,
        outcome=outcome,
        note=codec.encode(note) if note is not None else None,
        principal=requester.id,
        name=requester.name,
        via=SOURCE,
        body=codec.encode(giver_json(requester, Place("direct"), None)),
        tell=tell,
        events=() if aside else settled_events(prompt, requester, outcome),
        where=where,
        aside=bool(aside),
    )
