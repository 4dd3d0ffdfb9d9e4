"""What is owed to people: cards and their copies, what came of a call, notices.

What lives here: posts as values. What does not: how they are drawn (bot/egress.py), when they are owed (changes.py, waits.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from bot.display import literal, quoted
from bot.history import ResultItem, ResultStatus
from bot.turn.change import NewPrompt, Post
from bot.turn.copies import CardResult, Copy
from bot.turn.state import Consent, Earlier, Pending, Purpose, Turn
from bot.turn.view import OpenPrompt

SHORT = 200
"""Characters of a result that are shown on its card."""


def notice(text: str) -> Post:
    """A remark in the turn's own place."""
    return Post(body={"kind": "notice", "text": text})


def notice_at(turn: Turn, copy: Copy, text: str, *, mentions: Sequence[str] = ()) -> Post:
    """A remark beside a card, for the same readers; `mentions` are those it is for."""
    body: dict[str, JsonValue] = {"kind": "notice", "text": text, "mentions": list(mentions)}
    if copy.private_to is not None:
        body["private_to"] = copy.private_to
    channel, address = turn.place_of(copy)
    return Post(body=body, channel=channel, address=address)


def reminder(prompt: OpenPrompt, count: int = 1) -> str:
    """Say that a request is still open, or that several are."""
    what = quoted(prompt.text) if count == 1 else f"{count} requests"
    return f"Still unanswered: {what}. {literal(prompt.waiting_for) or 'Somebody'} may answer."


def whisper(channel: str | None, address: str | None, principal: str, text: str) -> Post:
    """A remark that one person alone sees."""
    return Post(body={"kind": "notice", "text": text, "private_to": principal}, channel=channel, address=address)


def card(copy: Copy, prompt_id: str) -> Post:
    """A prompt's card, put where a copy of it is to be."""
    body: dict[str, JsonValue] = {"kind": "card"}
    if copy.private_to is not None:
        body["private_to"] = copy.private_to
    if copy.plain:
        body["plain"] = True
    if copy.status:
        body["status"] = True
    return Post(body=body, delivery_id=copy.delivery_id, prompt_id=prompt_id, channel=copy.channel, address=copy.address)


def cards(turn: Turn, prompts: Sequence[NewPrompt]) -> tuple[Post, ...]:
    """The cards of new prompts; one that stands elsewhere leaves a word in the turn's place about where."""
    posts: list[Post] = []
    for prompt in prompts:
        if prompt.group is not None and prompt.group != prompt.prompt_id:
            continue
        copies = copies_of(prompt)
        posts += [card(copy, prompt.prompt_id) for copy in copies]
        elsewhere = bool(copies) and not any(_seen_in_thread(turn, copy) for copy in copies)
        if elsewhere and turn.address is not None:
            posts.append(notice(_pointer(prompt, copies[0])))
    return tuple(posts)


def copies_of(prompt: NewPrompt) -> tuple[Copy, ...]:
    """Where a new prompt's card goes."""
    return prompt.copies or ((Copy(delivery_id=prompt.delivery_id),) if prompt.delivery_id is not None else ())


def _seen_in_thread(turn: Turn, copy: Copy) -> bool:
    return turn.place_of(copy) == (turn.channel, turn.address) and copy.private_to is None


def _pointer(prompt: NewPrompt, copy: Copy) -> str:
    who = literal(str(prompt.asked or prompt.body.get("waiting_for") or "somebody"))
    return f"{who[:1].upper()}{who[1:]} may answer a request that was put {_where(prompt.body.get('route'), copy)}."


def _where(route: Any, copy: Copy) -> str:
    """Say where a card is, for who can't see it."""
    if copy.private_to is not None:
        return "to them privately"
    title = str(route.get("title") or "") if isinstance(route, Mapping) else ""
    return f"in {literal(title)}" if title else "elsewhere"


# ── what came of calls ──


def on_cards(pending: Pending) -> Pending:
    """A call by the cards that tell what comes of it: of one that had to sign in, those of what let it run before."""
    if pending.purpose is not Purpose.SIGN_IN:
        return pending
    before = pending.earlier or Earlier(purpose=pending.purpose, prompt_id="")
    return replace(
        pending, purpose=before.purpose, prompt_id=before.prompt_id, copies=before.copies, group=before.group, delivery_id=None
    )


def short(result: ResultItem, consent: Consent | None = None, most: int = SHORT) -> str:
    """What a result says, as far as a card has room; without what was changed before, which the card lists itself.

    Of one that was fetched with somebody's own account, only that it is there.
    """
    if result.private_to is not None:
        return "Done." if result.status is ResultStatus.COMPLETED else "It failed."
    text = result.content if isinstance(result.content, str) else ""
    if consent is not None and consent.edits:
        before, found, _ = text.rpartition(f"{consent.name} changed ")
        text = before if found else text
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def results_on_cards(run: Sequence[Pending], results: Mapping[str, ResultItem], known: Iterable[CardResult]) -> tuple[Post, ...]:
    """Edits that write on every copy of a card what came of its call; on one of several calls, of all that are known."""
    posts: list[Post] = []
    shown = [on_cards(pending) for pending in run]
    by_card: dict[str, dict[str, JsonValue]] = {}
    for one in known:
        by_card.setdefault(one.group, {})[one.prompt_id] = {"result": one.text, "status": one.status}
    for pending in shown:
        result = results.get(pending.call.call_id)
        if pending.group is not None:
            items = by_card.pop(pending.group, None)
            if items:
                posts += [_edit(pending, copy, {"results": items}) for copy in pending.cards]
        elif result is not None:
            told: dict[str, JsonValue] = {"result": short(result, pending.consent), "status": result.status.value}
            posts += [_edit(pending, copy, told) for copy in pending.cards]
    return tuple(posts)


def progress_on_cards(pending: Pending, text: str) -> tuple[Post, ...]:
    """Edits that write on every copy of a call's card how far its run is; a card of several calls is left alone."""
    if pending.group is not None:
        return ()
    told: dict[str, JsonValue] = {"result": text[:SHORT], "status": "running"}
    return tuple(_edit(pending, copy, told) for copy in pending.cards)


def _edit(pending: Pending, copy: Copy, told: Mapping[str, JsonValue]) -> Post:
    post = card(copy, pending.card_of)
    return Post(
        body={**post.body, **told},
        prompt_id=post.prompt_id,
        edit_of=copy.delivery_id,
        channel=post.channel,
        address=post.address,
    )


def card_results(turn: Turn, run: Sequence[Pending], results: Mapping[str, ResultItem]) -> tuple[CardResult, ...]:
    """What is known of calls that share cards, after some of them ran."""
    more = [
        CardResult(group=one.group, prompt_id=one.prompt_id, status=result.status.value, text=short(result, one.consent))
        for one in map(on_cards, run)
        if one.group is not None and (result := results.get(one.call.call_id)) is not None
    ]
    return (*turn.card_results, *more)
