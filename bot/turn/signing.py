"""The request to connect an account before a call goes on: its body and its prompt, pure.

What lives here: what people are shown, and words for what came of it. What does not: whether an account is there
(bot/connections), the link and its pages (bot/signins), when a call is gated (bot/session/signing.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pydantic import JsonValue

from bot.display import reveal
from bot.principal import Principal
from bot.turn.state import Purpose

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
