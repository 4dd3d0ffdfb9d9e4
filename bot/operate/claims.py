"""`moorings claims`: keys that were claimed and left, where nobody knows what became of the effect; saying what did.

What lives here: the commands and their options, and what they do. What does not: the claims (durable_core/claiming.py).
Whatever is heavy is imported inside a command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bot.operate.options import App, Data, Limit, with_store

if TYPE_CHECKING:
    from pathlib import Path

    from durable_core.listing import ClaimLine
    from durable_core.model import KeySettled, KeySettlement
    from durable_core.store import Store

BY = "cli:operator"
VIA = "cli"

claims = typer.Typer(help="Claimed keys of which nobody has said that it is done.", invoke_without_command=True)

ClaimId = Annotated[str, typer.Argument(metavar="CLAIM", help="Id of a claim, clm_…, as `moorings claims` lists it.")]
Key = Annotated[str | None, typer.Option(help="Only of one key, such as invoice:17; keys are stored as hashes, and not shown.")]
WithDone = Annotated[bool, typer.Option("--done", help="Those that are done, too.")]
Reason = Annotated[str, typer.Option(help="How you know; it stands in the audit.")]
Value = Annotated[str | None, typer.Option(metavar="JSON", help="What whoever asks for the key is told; null without it.")]
Who = Annotated[str, typer.Option("--as", metavar="PRINCIPAL", help="Who says so, as in slack:T01:U02 or api:farah.")]


@claims.callback()
def list_by_default(
    context: typer.Context, *, key: Key = None, done: WithDone = False, limit: Limit = 200, app: App = None, data: Data = None
) -> None:
    """List pending claims, the oldest first."""
    if context.invoked_subcommand is None:
        _list(key, limit, app, data, done=done)


@claims.command("list")
def list_claims(*, key: Key = None, done: WithDone = False, limit: Limit = 200, app: App = None, data: Data = None) -> None:
    """List pending claims, the oldest first."""
    _list(key, limit, app, data, done=done)


def _list(key: str | None, limit: int, app: str | None, data: Path | None, *, done: bool) -> None:
    from bot.operate import show  # noqa: PLC0415

    show.claims(with_store(app, data, lambda store: listed(store, key=key, done=done, limit=limit)))


@claims.command("done")
def say_done(
    claim: ClaimId,
    *,
    reason: Reason,
    value: Value = None,
    principal: Who = BY,
    app: App = None,
    data: Data = None,
) -> None:
    """Say that what was begun has been done: whoever asks for the key is told so from now on."""
    _settle(_said(claim, principal, reason, done=True), app, data, value=value)


@claims.command("release")
def say_released(claim: ClaimId, *, reason: Reason, principal: Who = BY, app: App = None, data: Data = None) -> None:
    """Say that there was no effect, and that nobody is at it: whoever asks for the key next goes ahead."""
    _settle(_said(claim, principal, reason, done=False), app, data)


def _said(claim: str, principal: str, reason: str, *, done: bool) -> KeySettlement:
    from bot.operate.asking import person, reason_of  # noqa: PLC0415
    from durable_core.model import KeySettlement  # noqa: PLC0415

    by = person(principal, ()).id
    return KeySettlement(claim_id=claim, done=done, by=by, via=VIA, where=VIA, reason=reason_of(reason))


def _settle(said: KeySettlement, app: str | None, data: Path | None, *, value: str | None = None) -> None:
    from bot.operate import show  # noqa: PLC0415
    from durable_core.model import KeyFate  # noqa: PLC0415

    settled = with_store(app, data, lambda store: settle(store, said, value=value))
    show.lines([words_of(said, settled)])
    raise typer.Exit(0 if settled.fate is KeyFate.SETTLED else 1)


async def listed(store: Store, *, key: str | None, done: bool, limit: int) -> list[ClaimLine]:
    """Return claims, the oldest first."""
    from durable_core import listing  # noqa: PLC0415

    return await listing.list_claims(store, key=key, done=done, limit=limit)


async def settle(store: Store, said: KeySettlement, *, value: str | None = None) -> KeySettled:
    """Say what became of a claim; without a value it is null, or nothing where nothing can be kept any more.

    Raises: NotReady (the value is no JSON, or can't be kept), NotFound.
    """
    from dataclasses import replace  # noqa: PLC0415

    from bot.errors import NotReady  # noqa: PLC0415
    from durable_core.errors import ContentGone  # noqa: PLC0415

    kept = replace(said, value=_encoded(value)) if said.done else said
    try:
        return await store.settle_key(kept)
    except ContentGone as error:
        if value is None:
            return await store.settle_key(said)
        run_id = error.run_id
        raise NotReady(f"The content of {run_id} was deleted, so no value can be kept for it. Leave --value out.") from error


def _encoded(value: str | None) -> bytes:
    import json  # noqa: PLC0415

    from bot.errors import NotReady  # noqa: PLC0415
    from durable_core import codec  # noqa: PLC0415
    from durable_core.errors import TooLarge, Unstorable  # noqa: PLC0415

    try:
        return codec.encode(None if value is None else json.loads(value))
    except (ValueError, RecursionError, Unstorable, TooLarge) as error:
        raise NotReady(f"--value is no JSON that can be kept ({error}); write a text as '\"INV-7\"'.") from error


def words_of(said: KeySettlement, settled: KeySettled) -> str:
    """Say what came of it."""
    from durable_core.model import KeyFate  # noqa: PLC0415

    run_id = settled.claim.run_id
    match settled.fate:
        case KeyFate.BUSY:
            return (
                f"{run_id} is being worked on, maybe at this very effect; nothing was changed. "
                f"Wait until it rests or has ended, or stop it first: moorings cancel {run_id}"
            )
        case KeyFate.DONE:
            return f"{said.claim_id} was done before; that stays as it was said."
        case _:
            done, released = "done: whoever asks for its key is told so", "released: whoever asks for its key next goes ahead"
            return f"{said.claim_id} is {done if said.done else released}."
