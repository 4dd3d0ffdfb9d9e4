"""Where the prompts of one step are put: by route, and those that belong together on one card.

What lives here: the choice, pure but for the ids it is given. What does not: drawing, sending, who may answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from pydantic import JsonValue

from bot.turn.change import NewPrompt
from bot.turn.copies import Copy
from bot.turn.state import Purpose, Turn
from channels.cards import MAX_ITEMS
from durable_core.model import AnswerPolicy

Mint: TypeAlias = Callable[[], str]
"""Makes the id of a delivery."""


def put(turn: Turn, prompts: Sequence[NewPrompt], *, now: int, mint: Mint) -> tuple[NewPrompt, ...]:
    """Say of each prompt where its card goes, and set its times; approvals with one route share a card."""
    alike: dict[str, list[NewPrompt]] = {}
    for prompt in prompts:
        alike.setdefault(_kinship(turn, prompt), []).append(prompt)
    cards = [kin[at : at + MAX_ITEMS] for kin in alike.values() for at in range(0, len(kin), MAX_ITEMS)]
    leaders = {one.prompt_id: sharing for sharing in cards if len(sharing) > 1 for one in sharing}
    placed = []
    for prompt in prompts:
        timed = _timed(prompt, now)
        sharing = leaders.get(prompt.prompt_id)
        if sharing is None:
            placed.append(replace(timed, copies=_copies(turn, timed, mint)))
            continue
        leader = sharing[0].prompt_id
        group: dict[str, JsonValue] = {"leader": leader, "size": len(sharing)}
        first = next((one for one in placed if one.prompt_id == leader), None)
        copies = first.copies if first is not None else _copies(turn, timed, mint)
        placed.append(replace(timed, body={**timed.body, "group": group}, group=leader, copies=copies))
    return tuple(placed)


def _kinship(turn: Turn, prompt: NewPrompt) -> str:
    """Prompts of equal kinship are asked of the same people, in the same place, and handed on alike."""
    if prompt.purpose is not Purpose.APPROVAL:
        return prompt.prompt_id
    body = prompt.body
    readers = _readers(turn, prompt) if _route(prompt).get("to") == "direct" else ()
    return repr([body.get(name) for name in ("route", "levels", "on_expiry", "level_ms")] + [readers])


def _route(prompt: NewPrompt) -> dict[str, Any]:
    route = prompt.body.get("route")
    return dict(route) if isinstance(route, dict) else {}


def _timed(prompt: NewPrompt, now: int) -> NewPrompt:
    remind_ms = prompt.body.get("remind_ms")
    if prompt.remind_at is not None or not isinstance(remind_ms, int) or remind_ms <= 0:
        return prompt
    at = now + remind_ms
    return prompt if prompt.expires_at is not None and at >= prompt.expires_at else replace(prompt, remind_at=at)


def _copies(turn: Turn, prompt: NewPrompt, mint: Mint) -> tuple[Copy, ...]:
    first = prompt.delivery_id
    route = _route(prompt)
    channel, address = route.get("channel"), route.get("address")
    if route.get("to") == "address" and channel and address:
        at_home = (channel, address) == (turn.channel, turn.address)
        copy = Copy(delivery_id=first or mint())
        return (copy if at_home else replace(copy, channel=str(channel), address=str(address)),)
    if turn.address is None:
        return ()
    if prompt.purpose is Purpose.SIGN_IN:
        return _to_one(turn, Copy(delivery_id=first or mint()), mint)
    if route.get("to") == "direct" and turn.place.kind != "direct":
        readers = _readers(turn, prompt)
        if readers:
            ids = [first or mint(), *(mint() for _ in readers[1:])]
            return tuple(Copy(delivery_id=id_, private_to=who) for id_, who in zip(ids, readers, strict=True))
    return (Copy(delivery_id=first or mint()),)


def _to_one(turn: Turn, card: Copy, mint: Mint) -> tuple[Copy, ...]:
    """Put a card to who asked alone; the others of the place see who is waited for."""
    if turn.place.kind == "direct":
        return (card,)
    return Copy(delivery_id=mint(), status=True), replace(card, private_to=turn.requester.id)


def _readers(turn: Turn, prompt: NewPrompt) -> tuple[str, ...]:
    """Who is to see a private card: those who may answer, as far as they are known here one by one."""
    if prompt.policy is AnswerPolicy.LISTED:
        known = prompt.answerers
    elif prompt.policy is AnswerPolicy.REQUESTER or prompt.for_requester:
        known = (turn.requester.id,)
    else:
        known = ()
    return tuple(who for who in known if who.startswith(f"{turn.channel}:"))
