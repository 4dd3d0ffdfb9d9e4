"""A prompt as a card: the open question, and its settled form, drawn from the prompt's row alone.

What lives here: prompt to `Card`, button values, words for outcomes. What does not: any platform's markup (channels/).
"""

from __future__ import annotations

from typing import Any, Final, cast

from bot import formats
from bot.display import reveal, show
from bot.formats import Kind
from channels.outbound import Button, ButtonStyle, Card, CardOutcome, OutcomeKind
from durable_core.model import Prompt, PromptOutcome

_KINDS: Final[dict[PromptOutcome, OutcomeKind]] = {
    PromptOutcome.ANSWERED: "approved",
    PromptOutcome.APPROVED: "approved",
    PromptOutcome.DENIED: "denied",
    PromptOutcome.EXPIRED: "expired",
    PromptOutcome.CANCELLED: "cancelled",
    PromptOutcome.IGNORED: "ignored",
}


def prompt_body(prompt: Prompt) -> dict[str, Any]:
    """What a prompt asks, as it was frozen when it was opened; whoever acts on it calls `readable` first."""
    return formats.show(Kind.PROMPT, prompt.body)


def readable(prompt: Prompt) -> None:
    """See that a prompt can be acted on.

    Raises: Stranded: a newer version wrote it.
    """
    formats.read(Kind.PROMPT, prompt.body, run_id=prompt.run_id)


def button_value(prompt_id: str, option_id: str) -> str:
    """What a button carries: the prompt and the option, nothing else; what it means is looked up."""
    return f"{prompt_id}:{option_id}"


def read_button(value: str) -> tuple[str, str] | None:
    """Read a button's value; None for one that isn't ours."""
    prompt_id, colon, option_id = value.partition(":")
    return (prompt_id, option_id) if colon and prompt_id and option_id else None


def card(prompt: Prompt, *, result: str = "") -> Card:
    """Draw a prompt as it stands."""
    body = prompt_body(prompt)
    buttons = tuple(
        Button(option["label"], button_value(prompt.prompt_id, option["id"]), style=cast("ButtonStyle", option["style"]))
        for option in body["options"]
    )
    return Card(
        body["text"],
        body["detail"],
        fields=tuple((name, value) for name, value in body["fields"]),
        evidence=tuple(body["evidence"]),
        buttons=buttons if prompt.outcome is None else (),
        expires_at=prompt.expires_at if prompt.outcome is None else None,
        outcome=_outcome(prompt, body, result),
    )


def _outcome(prompt: Prompt, body: dict[str, Any], result: str) -> CardOutcome | None:
    if prompt.outcome is None:
        return None
    return CardOutcome(_KINDS[prompt.outcome], settled_words(prompt, body), at=prompt.settled_at or 0, result=result)


def settled_words(prompt: Prompt, body: dict[str, Any]) -> str:
    """Say in words how a prompt ended and by whom."""
    who = prompt.settled_name or prompt.settled_by or "somebody"
    rerun = prompt.kind == "rerun"
    match prompt.outcome:
        case PromptOutcome.APPROVED:
            return f"{who} chose to run it again" if rerun else f"Approved by {who}{_changes(prompt, body)}"
        case PromptOutcome.DENIED:
            return f"{who} chose not to run it again" if rerun else f"Denied by {who}"
        case PromptOutcome.EXPIRED:
            return "Nobody answered in time. It did not run."
        case PromptOutcome.CANCELLED:
            return "No longer needed: the turn was stopped."
        case PromptOutcome.IGNORED:
            return f"No longer needed: {body['requester']['name']} wrote on."
        case _:
            return f"Answered by {who}"


def _changes(prompt: Prompt, body: dict[str, Any]) -> str:
    """Say what whoever approved changed first."""
    note = formats.show(Kind.NOTE, prompt.note) if prompt.note is not None else {}
    before = (body["action"] or {}).get("input", {})
    changed = [
        f"{reveal(name)} from {show(before[name]) if name in before else 'its default'} to {show(value)}"
        for name, value in (note.get("edits") or {}).items()
    ]
    return f", who changed {', '.join(changed)}" if changed else ""
