"""The request to connect an account before a call goes on: its body and its prompt, pure.

What lives here: what people are shown, and words for what came of it. What does not: whether an account is there
(bot/connections), the link and its pages (bot/signins), when a call is gated (bot/session/signing.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from pydantic import JsonValue

from bot.display import quoted_note, reveal
from bot.history import ResultStatus
from bot.principal import Principal
from bot.turn.actions import Closed, Reroute, Resolve
from bot.turn.change import Draft, NewPrompt
from bot.turn.copies import Copy
from bot.turn.state import Pending, Purpose, Response, Stage, Turn, Undelivered
from bot.turn.view import View
from durable_core.model import PromptOutcome

CONNECT: Final = "connect"
"""The option that asks for a link: no answer, and never settled by it."""
CANCEL: Final = "cancel"
CONNECTED: Final = "connected"
"""What a prompt is settled with once the account is there: no option, so that nobody can choose it."""
DECLINED: Final = "declined"
LINK: Final = "link"
"""The outcome of an option that settles nothing."""

Reason: TypeAlias = Literal["missing", "refused", "scopes"]
"""Why an account has to be connected: there is none, its service refused it, or it may too little."""

_TEXTS: Final[dict[Reason, str]] = {
    "missing": "Connect {title} to go on",
    "refused": "Connect {title} again to go on",
    "scopes": "Allow more on {title} to go on",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Which account is asked for: a connection, by its name and as people call it, and what it has to allow."""

    connection: str
    title: str
    scopes: tuple[str, ...] = ()
    reason: Reason = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """On whose behalf it is asked, by what, and where."""

    requester: Principal
    agent: str
    session_id: str
    turn_id: str | None
    channel: str | None
    address: str | None


def sign_in_body(
    prompt_id: str,
    account: Account,
    origin: Origin,
    *,
    asked_for: Sequence[str],
    action: dict[str, JsonValue] | None,
    expires_at: int | None,
    remind_ms: int | None = None,
) -> dict[str, JsonValue]:
    """Build the body of a sign-in prompt. ``asked_for`` names the tools that need it, ``action`` is the first call."""
    who, title = origin.requester.name, reveal(account.title)
    options: list[JsonValue] = [
        {"id": CONNECT, "label": f"Connect {title}", "style": "primary", "outcome": LINK},
        {"id": CANCEL, "label": "Cancel", "style": "plain", "outcome": "denied"},
    ]
    rows: list[JsonValue] = [["Account", title]]
    rows += [["It may", ", ".join(map(reveal, account.scopes))]] if account.scopes else []
    rows += [["Tool", ", ".join(asked_for)]] if asked_for else []
    return {
        "request_id": prompt_id,
        "kind": Purpose.SIGN_IN.value,
        "turn_id": origin.turn_id,
        "text": _TEXTS[account.reason].format(title=title),
        "detail": f"{who} may answer, with an account of their own. It goes on as {who}.",
        "waiting_for": who,
        "action": action,
        "fields": rows,
        "evidence": [],
        "options": options,
        "display": "buttons",
        "allow_freeform": False,
        "requester": origin.requester.to_json(),
        "expires_at": expires_at,
        "remind_ms": remind_ms,
        "by_approval": False,
        "connection": account.connection,
        "title": title,
        "scopes": list[JsonValue](account.scopes),
        "agent": origin.agent,
        "channel": origin.channel,
        "address": origin.address,
        "session_id": origin.session_id,
        "reason": account.reason,
    }


# ── what came of it ──


def title_of(view: View, pending: Pending) -> str:
    """What people call the account that is waited for."""
    prompt = view.open.get(pending.prompt_id) or view.answered.get(pending.prompt_id)
    return (prompt.title if prompt is not None else "") or pending.connection


def released(pending: Pending, answer: Response) -> Pending:
    """The call after its account was connected; a yes that it had before stays."""
    return replace(pending, stage=Stage.READY, since=answer.consent.at)


def refused(pending: Pending, answer: Response, title: str) -> Closed:
    """Close a call whose account was not connected, with what the person wrote, or why it ended at the provider."""
    note = answer.consent.note
    words = f"{answer.consent.name} did not connect {title}."
    # an option has a label; what a sign-in came to by itself is no option
    why = quoted_note(note) if answer.label else f"{note.removesuffix('.')}."
    return _closed(pending, ResultStatus.REJECTED, f"{words} {why}" if note else words)


def expired(pending: Pending, title: str) -> Closed:
    """Close a call whose account nobody connected in time."""
    return _closed(pending, ResultStatus.EXPIRED, f"Nobody connected {title} in time.")


def ignored(pending: Pending, title: str) -> Closed:
    """Close a call whose person wrote on."""
    return _closed(pending, ResultStatus.REJECTED, f"The person wrote a new message instead of connecting {title}.")


def undelivered(view: View, turn: Turn, signal: Undelivered, failed: Copy, pending: Pending) -> Reroute | Resolve:
    """What is done about a card of a sign-in that can't be delivered: where the person can't be asked, the call ends.

    A request that is put to them alone is put nowhere else; in a conversation of theirs alone it may be plain text.
    """
    if failed.status:
        return Reroute(signal=signal, prompts=(pending,), failed=failed, to=None)
    if failed.private_to is None and not failed.plain:
        return Reroute(signal=signal, prompts=(pending,), failed=failed, to="text")
    title = title_of(view, pending)
    words = f"{turn.requester.name} could not be asked privately to connect {title}: {signal.error}."
    waiting = [one for one in turn.asked if one.prompt_id == pending.prompt_id]
    return Resolve(
        closed=tuple(_closed(one, ResultStatus.REJECTED, words) for one in waiting),
        settle=((pending.prompt_id, PromptOutcome.CANCELLED),),
        undelivered=(signal,),
    )


def was_cut_off(waited: Pending | None) -> bool:
    """Whether nobody knows what a call did before it came to wait for an account."""
    return waited is not None and Purpose.RERUN in (waited.purpose, waited.earlier.purpose if waited.earlier else None)


def unrun(words: str, status: ResultStatus, *, begun: int, cut_off: bool) -> tuple[ResultStatus, str]:
    """Say why a call ends that has no account to act with, and what it did by then."""
    if cut_off:
        return ResultStatus.UNKNOWN, f"{words} It was cut off while it ran, and was not run again. {_UNKNOWN}"
    return status, f"{words} {'It was begun, and was not run again.' if begun else 'The call did not run.'}"


_UNKNOWN: Final = "Whether it took effect is not known."


def _closed(pending: Pending, status: ResultStatus, words: str) -> Closed:
    ends, text = unrun(words, status, begun=pending.begun, cut_off=was_cut_off(pending))
    return Closed(pending=pending, status=ends, content=text)


# ── what readers are told ──


def required(turn: Turn, prompt: NewPrompt, joined: Sequence[Pending]) -> Draft:
    """Tell readers whose account is waited for, and by which calls."""
    others = [one.call.call_id for one in joined if one.prompt_id == prompt.prompt_id]
    data: dict[str, JsonValue] = {
        "turn_id": turn.turn_id,
        "call_ids": [prompt.call.call_id, *others],
        "request_id": prompt.prompt_id,
        "name": prompt.connection,
        "title": prompt.body.get("title"),
        "scopes": list[JsonValue](prompt.scopes),
        "principal": turn.requester.id,
    }
    return Draft(type="authorization.required", data=data)


def required_by_run(turn: Turn, body: Mapping[str, JsonValue], call_id: str) -> Draft:
    """Tell readers whose account is waited for by a run that works for a call."""
    data: dict[str, JsonValue] = {
        "turn_id": turn.turn_id,
        "call_ids": [call_id],
        "request_id": body.get("request_id"),
        "name": body.get("connection"),
        "title": body.get("title"),
        "scopes": body.get("scopes"),
        "principal": turn.requester.id,
    }
    return Draft(type="authorization.required", data=data)


def completed(turn: Turn, prompt_id: str, outcome: PromptOutcome) -> Draft | None:
    """Tell readers how a sign-in ended that nobody answered; None of another request."""
    pending = next((one for one in turn.asked if one.prompt_id == prompt_id and one.purpose is Purpose.SIGN_IN), None)
    if pending is None:
        return None
    return Draft(type="authorization.completed", data=completed_data(turn.turn_id, prompt_id, pending.connection, outcome))


def undeliverable(turn: Turn, action: Resolve) -> list[Draft]:
    """Tell readers which cards could not be delivered, so that calls ended."""
    told: list[Draft] = []
    for signal in action.undelivered:
        pending = next(one for one in turn.asked if any(copy.delivery_id == signal.delivery_id for copy in one.cards))
        copy = next(copy for copy in pending.cards if copy.delivery_id == signal.delivery_id)
        channel, address = turn.place_of(copy)
        data: dict[str, JsonValue] = {
            "turn_id": turn.turn_id,
            "request_id": pending.prompt_id,
            "kind": pending.purpose.value,
            "delivery_id": signal.delivery_id,
            "channel": channel,
            "address": address,
            "error": signal.error,
            "fallback": None,
        }
        told.append(Draft(type="input.undeliverable", data=data))
    return told


def completed_data(turn_id: JsonValue, prompt_id: str, connection: JsonValue, outcome: PromptOutcome) -> dict[str, JsonValue]:
    """Build the data of `authorization.completed`."""
    words = {PromptOutcome.APPROVED: "authorized", PromptOutcome.EXPIRED: "timed-out"}
    return {
        "turn_id": turn_id,
        "request_id": prompt_id,
        "name": connection,
        "outcome": words.get(outcome, "declined"),
    }
