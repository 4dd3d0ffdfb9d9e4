"""Rows as clients of the session API read them.

What lives here: pure functions from values to JSON. What does not: reading the store (sessions.py), HTTP (bot/server/).
"""

from __future__ import annotations

from datetime import UTC, datetime

from bot.answers import explain
from bot.cards import prompt_body
from bot.session_api import JsonObject, Response, ResponseResult, ResponseStatus
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
    """An open request as clients read it."""
    body = prompt_body(prompt)
    options = [{"id": option["id"], "label": option["label"], "style": option["style"]} for option in body["options"]]
    return {
        "request_id": prompt.prompt_id,
        "kind": prompt.kind,
        "text": body["text"],
        "detail": body["detail"],
        "action": body["action"],
        "options": options,
        "evidence": body["evidence"],
        "expires_at": iso(prompt.expires_at),
    }


def response_view(response: Response, receipt: AnswerReceipt) -> ResponseResult:
    """What came of an answer."""
    return ResponseResult(
        response.request_id, receipt.submission_id, ResponseStatus(receipt.status.value), reason=explain(receipt)
    )
