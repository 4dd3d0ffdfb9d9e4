"""`moorings audit`: who was asked, who answered, how and when; and whether that list is whole.

What lives here: the commands and their options, reading and checking the chain. What does not: the chain (durable_core/audit.py).
Whatever is heavy is imported inside a command.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from bot.operate.options import App, Data, Limit, with_store

if TYPE_CHECKING:
    from durable_core.model import AuditEntry
    from durable_core.store import Store

PAGE = 500

audit = typer.Typer(help="Who was asked, who answered, how and when; a chain of hashes.", invoke_without_command=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Whether the chain is whole; `broken` is the first entry that is not as it should be, and why."""

    head: AuditEntry | None
    entries: int
    broken: int | None = None
    why: str = ""


@audit.callback()
def list_entries(
    context: typer.Context,
    *,
    session: Annotated[str | None, typer.Option(help="Only of a session.")] = None,
    request: Annotated[str | None, typer.Option(help="Only of a request.")] = None,
    since: Annotated[str | None, typer.Option(help="Only from a time on, such as 2026-08-01 or 2026-08-01T10:00Z.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with all that is hashed.")] = False,
    limit: Limit = 1_000,
    app: App = None,
    data: Data = None,
) -> None:
    """List entries, the oldest first."""
    if context.invoked_subcommand is not None:
        return
    from bot.operate import show  # noqa: PLC0415

    from_at = 0 if since is None else moment_of(since)
    found = with_store(
        app, data, lambda store: entries(store, session_id=session, request_id=request, since=from_at, limit=limit)
    )
    if as_json:
        import json  # noqa: PLC0415

        for entry in found:
            typer.echo(json.dumps(asdict(entry)))
        return
    show.audit(found)


@audit.command("verify")
def verify_chain(
    *,
    first: Annotated[int | None, typer.Option("--from", min=1, help="Check from this entry on, whose hash you kept.")] = None,
    expect: Annotated[str | None, typer.Option(help="The hash that you kept of it.")] = None,
    app: App = None,
    data: Data = None,
) -> None:
    """Check that no entry was changed or left out; exit code 1 if one was. Keep the number and hash that it prints elsewhere."""
    from bot.errors import NotReady  # noqa: PLC0415
    from bot.operate import show  # noqa: PLC0415

    if (first is None) is not (expect is None):
        raise NotReady("--from and --expect go together: the number of an entry, and the hash that you kept of it.")
    found = with_store(app, data, lambda store: checked(store, first=first, expect=expect))
    if found.broken is not None:
        show.lines([f"Broken at entry {found.broken}: {found.why}"])
        raise typer.Exit(1)
    if found.head is None:
        show.lines(["There are no entries yet."])
        return
    show.lines([f"Whole: {found.entries} entries checked. The last is {found.head.n}, with the hash {found.head.hash}"])


async def entries(store: Store, *, session_id: str | None, request_id: str | None, since: int, limit: int) -> list[AuditEntry]:
    """Return entries, the oldest first."""
    found: list[AuditEntry] = []
    after = 0
    while page := await store.audit(after=after, limit=PAGE, run_id=session_id, prompt_id=request_id):
        found += [entry for entry in page if entry.at >= since]
        after = page[-1].n
        if len(found) >= limit or len(page) < PAGE:
            break
    return found[:limit]


async def checked(store: Store, *, first: int | None = None, expect: str | None = None) -> Checked:
    """Check the chain, all of it or from an entry on whose hash was kept elsewhere."""
    from durable_core.audit import hash_of, verify  # noqa: PLC0415

    last: AuditEntry | None = None
    count = 0
    if first is not None:
        page = await store.audit(after=first - 1, limit=1)
        if not page or page[0].n != first:
            return Checked(head=None, entries=0, broken=first, why="it is missing; entries were taken away.")
        last, count = page[0], 1
        if last.hash != expect:
            return Checked(head=last, entries=0, broken=first, why="it has another hash than the one that you kept.")
        if hash_of(last) != last.hash:
            return Checked(head=last, entries=0, broken=first, why="its hash does not fit what it says; it was changed.")
    while page := await store.audit(after=last.n if last is not None else 0, limit=PAGE):
        broken = verify(page, last)
        if broken is not None:
            return Checked(head=last, entries=count, broken=broken, why=_why(page, broken))
        last, count = page[-1], count + len(page)
        if len(page) < PAGE:
            break
    return Checked(head=last, entries=count)


def _why(page: list[AuditEntry], broken: int) -> str:
    from durable_core.audit import hash_of  # noqa: PLC0415

    entry = next((one for one in page if one.n == broken), None)
    if entry is None:
        return "it is missing."
    if entry.hash != hash_of(entry):
        return "its hash does not fit what it says; it was changed."
    return "it does not follow the entry before it."


def moment_of(text: str) -> int:
    """Read a time, in UTC where it names no zone.

    Raises: NotReady.
    """
    from datetime import UTC, datetime  # noqa: PLC0415

    from bot.errors import NotReady  # noqa: PLC0415

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise NotReady(f"--since {text} is no time; write it as 2026-08-01 or 2026-08-01T10:00Z.") from None
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)
