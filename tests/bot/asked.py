"""Prompts as the store returns them, for what draws and reads them.

What lives here: builders. What does not: tests, or a store.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from durable_core import codec
from durable_core.model import AnswerPolicy, Prompt, PromptOutcome, Vote

AT = 1_800_000_000_000
DAY = 86_400_000


def option(id_: str, label: str, style: str = "plain", outcome: str = "answered", **more: Any) -> dict[str, Any]:
    return {"id": id_, "label": label, "style": style, "outcome": outcome, **more}


APPROVE, DENY = option("approve", "Approve", "primary", "approved"), option("deny", "Deny", "plain", "denied")


def prompt(
    text: str, prompt_id: str = "prm_1", *, kind: str = "approval", row: dict[str, Any] | None = None, **body: Any
) -> Prompt:
    """Return an open prompt; `row` are columns, the rest is its body's."""
    shown: dict[str, Any] = {
        "request_id": prompt_id,
        "kind": kind,
        "turn_id": "turn_0",
        "text": text,
        "detail": "Finance may answer. It runs once, as Alice.",
        "waiting_for": "Finance",
        "action": {"call_id": "0.0.0", "tool": "refund_charge", "input": {}},
        "fields": [["Tool", "refund_charge"], ["charge_id", "ch_1"], ["amount", "140.00"]],
        "evidence": [],
        "options": [APPROVE, DENY],
        "allow_freeform": False,
        "requester": {"id": "console:alice", "name": "Alice", "standing": "member", "roles": [], "channel": "console"},
        "expires_at": AT + 3 * DAY,
        "by_approval": True,
    }
    asked = Prompt(
        prompt_id=prompt_id,
        run_id="ses_1",
        kind=kind,
        step_n=1,
        call_id="0.0.0",
        body=codec.encode(shown | body),
        requester="console:alice",
        policy=AnswerPolicy.REQUESTER,
        created_seq=1,
        created_at=AT,
        expires_at=AT + 3 * DAY,
    )
    return replace(asked, **(row or {}))


def settled(asked: Prompt, outcome: PromptOutcome, *, by: str = "Farah", at: int = AT, note: Any = None, **row: Any) -> Prompt:
    """Return the prompt as somebody answered it."""
    return replace(
        asked,
        outcome=outcome,
        settled_by=f"console:{by.lower()}",
        settled_name=by,
        settled_via="button",
        settled_at=at,
        note=codec.encode(note) if note is not None else None,
        **row,
    )


def vote(name: str, option_id: str = "approve") -> Vote:
    return Vote(principal=f"console:{name.lower()}", name=name, option_id=option_id, via="button", at=AT)
