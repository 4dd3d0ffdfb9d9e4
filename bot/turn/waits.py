"""What is changed while a turn waits: reminders, hand-overs, cards put elsewhere, answers that were typed, limits asked about.

What lives here: pure builders, one an action. What does not: which action it is (held.py), what ends the wait (changes.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import JsonValue

from bot.display import literal, quoted, within
from bot.turn import posts
from bot.turn.actions import Answer, Escalate, Remind, Reroute, Tell
from bot.turn.change import Change, Draft, Ended, NewPrompt, Post
from bot.turn.copies import Copy
from bot.turn.parts import asked, message_received, requests, turn_waiting
from bot.turn.routes import Mint
from bot.turn.state import Pending, State, Turn
from bot.turn.view import Level, OpenPrompt
from durable_core.model import Outcome, PromptUpdate


def limited(state: State, turn: Turn, prompt: NewPrompt) -> Change:
    """Ask whether the turn may go on past a limit."""
    pending = (asked(prompt),)
    return Change(
        kind="limit",
        state=replace(state, turn=replace(turn, pending=pending)),
        link_turn=turn.turn_id,
        events=(*requests(turn, (prompt,)), turn_waiting(turn, pending)),
        posts=posts.cards(turn, (prompt,)),
        prompts=(prompt,),
    )


def answered(state: State, turn: Turn, action: Answer, detail: Mapping[str, JsonValue]) -> Change:
    """Take a message out of the inbox that was given as an answer; ``detail`` says what became of the answer."""
    message = action.message
    return Change(
        kind="answer",
        state=replace(state, messages=state.messages + 1),
        link_turn=turn.turn_id,
        events=(message_received(state, turn, message, answers=action.prompt_id),),
        consumed=(message.seq,),
        outcomes=(Ended(submission_id=message.submission_id, outcome=Outcome.COMPLETED, detail={"answer": {**detail}}),),
    )


def reminded(state: State, turn: Turn, action: Remind, prompts: Mapping[str, OpenPrompt]) -> Change:
    """Remind of prompts, once; those that stand on one card in one notice, beside the card."""
    by_card: dict[str, list[Pending]] = {}
    for pending in action.prompts:
        by_card.setdefault(pending.card_of, []).append(pending)
    told: list[Post] = []
    for sharing in by_card.values():
        told += _reminders(turn, sharing, prompts)
    updates = tuple(
        PromptUpdate(prompt_id=one.prompt_id, expires_at=prompts[one.prompt_id].expires_at, remind_at=None)
        for one in action.prompts
    )
    return Change(
        kind="remind",
        state=state,
        link_turn=turn.turn_id,
        events=tuple(_moved("input.reminded", turn, one, {}) for one in action.prompts),
        posts=(*posts.results_on_cards(action.prompts, {}, turn.card_results), *told),
        updates=updates,
    )


def _reminders(turn: Turn, sharing: Sequence[Pending], prompts: Mapping[str, OpenPrompt]) -> list[Post]:
    first = prompts[sharing[0].prompt_id]
    text = posts.reminder(first, len(sharing))
    copies = sharing[0].cards
    # the newest place is where those are who are asked now; a private card's readers are reminded alone
    newest = [copy for copy in copies if copy.private_to is not None] if _private(copies) else list(copies[-1:])
    return [posts.notice_at(turn, copy, text, mentions=first.mentions) for copy in newest]


def _private(copies: Sequence[Copy]) -> bool:
    return bool(copies) and copies[-1].private_to is not None


def escalated(state: State, turn: Turn, action: Escalate, prompts: Mapping[str, OpenPrompt], *, now: int, mint: Mint) -> Change:
    """Hand prompts to who is next: they get a card where they are, and the turn's place learns of it."""
    told: list[Post] = []
    updates: list[PromptUpdate] = []
    events: list[Draft] = []
    copies: dict[str, tuple[Copy, ...]] = {}
    for pending in action.prompts:
        prompt = prompts[pending.prompt_id]
        level, number = prompt.next_level, prompt.next_number
        if level is None or number is None:
            continue
        updates.append(_handed(pending, prompt, level, number=number, now=now))
        about: dict[str, JsonValue] = {"level": number + 1, "waiting_for": level.waiting_for}
        events.append(_moved("input.escalated", turn, pending, about))
        card = pending.card_of
        if card not in copies:
            copies[card] = pending.cards
            place = (level.channel, level.address)
            if None not in place and not any(turn.place_of(copy) == place for copy in pending.cards):
                copy = Copy(delivery_id=mint(), channel=level.channel, address=level.address)
                copies[card] = (*pending.cards, copy)
                told.append(posts.card(copy, card))
            told.append(
                posts.notice(
                    f"Nobody answered in time, so now {literal(within(level.waiting_for))} may answer: {quoted(prompt.text)}"
                )
            )
    return Change(
        kind="escalate",
        state=replace(state, turn=_with_copies(turn, copies)),
        link_turn=turn.turn_id,
        events=tuple(events),
        posts=(*posts.results_on_cards(action.prompts, {}, turn.card_results), *told),
        updates=tuple(updates),
    )


def _handed(pending: Pending, prompt: OpenPrompt, level: Level, *, number: int, now: int) -> PromptUpdate:
    ms = prompt.next_ms
    reminds = prompt.remind_ms is not None and 0 < prompt.remind_ms < ms
    return PromptUpdate(
        prompt_id=pending.prompt_id,
        expires_at=now + ms,
        remind_at=now + prompt.remind_ms if reminds and prompt.remind_ms is not None else None,
        level=number + 1,
        asked=level.waiting_for,
        answerers=level.answerers,
    )


def rerouted(state: State, turn: Turn, action: Reroute, *, mint: Mint) -> Change:
    """Put a card that could not be delivered into the turn's place, or as plain text; readers learn of it either way."""
    copy = None
    if action.to is not None:
        copy = Copy(delivery_id=mint(), plain=action.to == "text")
    left = tuple(one for one in action.prompts[0].cards if one != action.failed)
    copies = (*left, copy) if copy is not None else left or action.prompts[0].cards
    channel, address = turn.place_of(action.failed)
    about: dict[str, JsonValue] = {
        "delivery_id": action.signal.delivery_id,
        "channel": channel,
        "address": address,
        "error": action.signal.error,
        "fallback": action.to,
    }
    card = action.prompts[0].card_of
    told = [posts.card(copy, card)] if copy is not None else []
    if action.failed.private_to is not None and not left and turn.address is not None:
        # what was to be private stays so: the thread learns only that nobody was asked
        told.append(posts.notice(f"Nobody could be asked privately: {action.signal.error}. Ask somebody who runs this bot."))
    done = Ended(submission_id=action.signal.submission_id, outcome=Outcome.COMPLETED, detail={"fallback": action.to})
    return Change(
        kind="reroute",
        state=replace(state, turn=_with_copies(turn, {card: copies})),
        link_turn=turn.turn_id,
        events=tuple(_moved("input.undeliverable", turn, one, about) for one in action.prompts),
        posts=tuple(told),
        consumed=(action.signal.seq,),
        outcomes=(done,),
    )


def told(state: State, turn: Turn, action: Tell) -> Change:
    """Say privately to those who wrote that their message waits; once a turn."""
    text = f"I am still with a request of {turn.requester.name or 'somebody else'}. Your message is next after that."
    whispers = [
        posts.whisper(message.body.channel, message.body.address, message.body.author.id, text) for message in action.messages
    ]
    known = (*turn.told, *(message.body.author.id for message in action.messages))
    return Change(
        kind="tell",
        state=replace(state, turn=replace(turn, told=known)),
        link_turn=turn.turn_id,
        posts=tuple(whispers),
    )


def _moved(kind: str, turn: Turn, pending: Pending, about: Mapping[str, JsonValue]) -> Draft:
    here: dict[str, JsonValue] = {"turn_id": turn.turn_id, "request_id": pending.prompt_id, "kind": pending.purpose.value}
    return Draft(type=kind, data={**here, **about})


def _with_copies(turn: Turn, copies: Mapping[str, tuple[Copy, ...]]) -> Turn:
    pending = tuple(
        replace(one, copies=copies[one.card_of]) if one.prompt_id and one.card_of in copies else one for one in turn.pending
    )
    return replace(turn, pending=pending)
