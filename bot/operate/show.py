"""How runs, dead letters and a run's insides look in a terminal.

What lives here: tables and their words. What does not: what they show (actions.py). Content is data: no markup works.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bot.cards import prompt_body
from bot.connections.connection import APP
from bot.connections.credentials import Listed
from bot.display import show as clean
from bot.operate.actions import Inspection
from bot.operate.asking import Request
from durable_core.listing import ClaimLine, OwedLine, RunLine
from durable_core.model import AuditEntry, RunStatus

_WIDE = 200
"""Columns where the output is no terminal: nothing is cut for want of room."""


def lines(texts: Sequence[str]) -> None:
    """Print lines."""
    console = _console()
    for text in texts:
        console.print(Text(clean(text)), soft_wrap=True)


def runs(found: Sequence[RunLine]) -> None:
    """Print runs, or that there are none."""
    if not found:
        lines(["No such runs."])
        return
    table = _table("run", "kind", "name", "status", "deployment", "format", "steps", "begun", "last", "why stranded")
    for line in found:
        state = line.status.value if line.status.value == "ended" else line.phase.value
        table.add_row(
            *_cells(
                line.run_id,
                line.kind.value,
                line.name,
                state if line.end_reason is None else f"{state} ({line.end_reason})",
                line.deployment,
                line.spec_version,
                line.step_no,
                moment(line.created_at),
                moment(line.last_at),
                _why(line),
            )
        )
    _console().print(table)


def owed(found: Sequence[OwedLine]) -> None:
    """Print deliveries, or that there are none."""
    if not found:
        lines(["Nothing."])
        return
    table = _table("delivery", "run", "channel", "address", "attempts", "since", "error")
    for line in found:
        table.add_row(
            *_cells(
                line.delivery_id, line.run_id, line.channel, line.address, line.attempts, moment(line.at), line.last_error or ""
            )
        )
    _console().print(table)


def requests(found: Sequence[Request]) -> None:
    """Print open requests, or that there are none."""
    if not found:
        lines(["No such requests."])
        return
    table = _table("request", "session", "kind", "asks", "waits for", "votes", "since", "until", "not delivered")
    for one in found:
        prompt, body = one.prompt, prompt_body(one.prompt)
        table.add_row(
            *_cells(
                prompt.prompt_id,
                one.session_id,
                prompt.kind,
                body.get("text", ""),
                (prompt.asked if prompt.level else "") or body.get("waiting_for") or prompt.asked,
                f"{len(prompt.votes)} of {prompt.quorum}" if prompt.quorum > 1 else "",
                moment(prompt.created_at),
                moment(prompt.expires_at),
                one.undelivered,
            )
        )
    _console().print(table)


def audit(found: Sequence[AuditEntry]) -> None:
    """Print entries of the audit, or that there are none."""
    if not found:
        lines(["No such entries."])
        return
    table = _table("n", "at", "what", "request", "run", "asked by", "by", "via", "where", "option", "outcome", "reason")
    for one in found:
        table.add_row(
            *_cells(
                one.n,
                moment(one.at),
                one.act,
                one.prompt_id,
                one.run_id,
                one.requester,
                one.principal or "",
                one.via,
                one.where,
                one.option_id or "",
                one.outcome or "",
                one.reason or "",
            )
        )
    _console().print(table)


def accounts(found: Sequence[Listed]) -> None:
    """Print connected accounts, or that there are none."""
    if not found:
        lines(["No account is connected."])
        return
    table = _table("connection", "whose", "account", "scopes", "connected", "last renewed")
    for one in found:
        whose = "the app" if one.owner == APP else one.owner
        table.add_row(
            *_cells(
                one.connection, whose, one.account, " ".join(one.scopes), moment(one.signed_in_at or None), moment(one.changed_at)
            )
        )
    _console().print(table)


def claims(found: Sequence[ClaimLine]) -> None:
    """Print claimed keys, or that there are none."""
    if not found:
        lines(["No such claims."])
        return
    table = _table("claim", "run", "what", "operation", "attempt", "since", "the run", "done")
    for one in found:
        stands = "is worked on" if one.busy else "has ended" if one.status is RunStatus.ENDED else f"is {one.phase.value}"
        table.add_row(
            *_cells(
                one.claim_id,
                one.run_id,
                f"{one.kind.value} {one.name}",
                one.operation,
                one.attempt,
                moment(one.at),
                stands,
                moment(one.done_at),
            )
        )
    _console().print(table)


def inspection(found: Inspection) -> None:
    """Print a run with all that is in it."""
    run = found.run
    lines(
        [
            f"{run.run_id}  {run.kind.value} {run.name}, {run.status.value}, {run.phase.value}",
            f"begun {moment(run.created_at)} by {run.creator}; deployment {run.deployment}, format {run.spec_version}",
            f"step {run.step_no}, attempt {run.attempt}, turn {run.turn_id or 'none'}, {run.event_count} events",
        ]
    )
    if run.ended_at is not None:
        lines([f"ended {moment(run.ended_at)}: {run.end_reason}"])
    if run.stranded is not None:
        lines([f"stranded: {run.stranded}"])
    if found.gone:
        deleted = f" {moment(run.purged_at)}" if run.purged_at is not None else ""
        lines([f"Its content was deleted{deleted}; ids and times are left."])
        return
    for title, items in (
        ("Steps", found.steps),
        ("Records of the pending step", found.records),
        ("Requests", found.prompts),
        ("Events", found.events),
    ):
        if items:
            lines(["", title])
            for item in items:
                _item(item)


def moment(at: int | None) -> str:
    """Write a time in UTC, to the second."""
    return "" if at is None else datetime.fromtimestamp(at / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _item(item: dict[str, Any]) -> None:
    times = {"at", "started_at", "completed_at", "created_at", "expires_at"}
    bodies = {"input", "output", "body", "data"}
    head = [f"{key} {moment(value) if key in times else value}" for key, value in item.items() if key not in bodies]
    lines([f"- {', '.join(head)}"])
    lines([f"    {key}: {json.dumps(item[key], ensure_ascii=False, default=str)}" for key in item if key in bodies])


def _why(line: RunLine) -> str:
    if line.stranded is None:
        return ""
    return f"{line.stranded} (code {line.stranded_code})" if line.stranded_code else line.stranded


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in {"run", "delivery", "request", "session", "claim"})
    return table


def _cells(*values: object) -> list[Text]:
    return [Text(clean(str(value))) for value in values]


def _console() -> Console:
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, emoji=False, width=_WIDE)
    return console
