"""Rows as clients of the session API read them.

What lives here: pure functions from values to JSON. What does not: reading the store (sessions.py), HTTP (bot/server/).
"""

from __future__ import annotations

from datetime import UTC, datetime

from bot.cards import prompt_body
from bot.session_api import JsonObject, ResponseResult, ResponseStatus
from bot.telling import explain
from durable_core.model import AnswerReceipt, Phase, Prompt, Submission


def iso(at: int | None) -> str | None:
    """A time as ISO 8601 in UTC, to the millisecond."""
    if at is None:
        return None
    return datetime.fromtimestamp(at / 1000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def status_of(found: Submission) -> str:
    """Where an input stands, in a word."""
    if found.outcome is not None:
        return found.outcome.value
    if not found.consumed:
        return "accepted" if found.run_phase is Phase.IDLE else "queued"
    return Phase.WAITING.value if found.run_phase is Phase.WAITING else Phase.RUNNING.value


def error_of(detail: JsonObject | None) -> JsonObject:
    """Say why work ended without a reply; the end of a session gives only its reason."""
    found = detail or {}
    if "code" in found:
        return found
    code = str(found.get("reason", "ended"))
    return {"code": code, "message": f"The session ended before this was done ({code})."}


def prompt_view(prompt: Prompt) -> JsonObject:
    """An open request as clients read it: all that a card shows."""
    body = prompt_body(prompt)
    return {
        "request_id": prompt.prompt_id,
        "kind": prompt.kind,
        "text": body["text"],
        "detail": body.get("detail", ""),
        "action": body.get("action"),
        "options": [_option(option) for option in body["options"]],
        "evidence": body.get("evidence", []),
        "expires_at": iso(prompt.expires_at),
        "waiting_for": (prompt.asked if prompt.level else "") or body.get("waiting_for") or prompt.asked,
        "allow_freeform": body.get("allow_freeform") is True,
        "edit": body.get("edit", []),
        "quorum": prompt.quorum,
        "votes": [{"responder": vote.principal, "option_id": vote.option_id, "at": iso(vote.at)} for vote in prompt.votes],
        "level": prompt.level,
        "group": prompt.group,
        "created_at": iso(prompt.created_at),
    }


def prompt_row(prompt: Prompt) -> JsonObject:
    """An open request in a list over sessions."""
    session_id = prompt_body(prompt).get("session_id") or prompt.run_id
    return {"session_id": session_id, "requester": prompt.requester, **prompt_view(prompt)}


def _option(option: JsonObject) -> JsonObject:
    shown = {"id": option["id"], "label": option["label"], "style": option.get("style") or "plain"}
    return shown | ({"description": option["description"]} if option.get("description") else {})


def response_view(request_id: str, receipt: AnswerReceipt) -> ResponseResult:
    """What came of an answer."""
    return ResponseResult(request_id, receipt.submission_id, ResponseStatus(receipt.status.value), reason=explain(receipt))
