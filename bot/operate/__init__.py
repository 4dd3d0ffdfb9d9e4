"""Commands for whoever operates a bot: what runs, what is stuck, and what can be done about it.

What lives here: the commands and their options. What does not: what they do (actions.py), how it looks (show.py).
Whatever is heavy is imported inside a command, as in bot/cli.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.operate import accounts, apps, audits, claims, requests
from bot.operate.options import App, Data, Limit, RunId, with_store

runs = typer.Typer(help="Runs: sessions and workflows, those that are stuck first of all.", invoke_without_command=True)
outbox = typer.Typer(help="What is owed to people and could not be sent.", invoke_without_command=True)


def add_to(commands: typer.Typer) -> None:
    """Put the commands beside the others."""
    commands.add_typer(runs, name="runs")
    commands.add_typer(outbox, name="outbox")
    commands.add_typer(requests.prompts, name="prompts")
    commands.add_typer(audits.audit, name="audit")
    commands.add_typer(claims.claims, name="claims")
    commands.add_typer(accounts.connections, name="connections")
    apps.add_to(commands)
    commands.command()(sessions)
    commands.command()(inspect)
    commands.command()(resume)
    commands.command()(cancel)


def start_mark(data: Path) -> Path:
    """Name the file in which dev says when it was started; what is unfinished from before is dormant."""
    return data / "started"


@runs.callback()
def list_runs(
    context: typer.Context,
    *,
    stranded: Annotated[bool, typer.Option("--stranded", help="Only those that no code that runs can go on with.")] = False,
    dormant: Annotated[bool, typer.Option("--dormant", help="Only those that the running dev leaves alone.")] = False,
    status: Annotated[str | None, typer.Option(help="Only open or ended ones, or only idle, running or waiting ones.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only of one kind: session or workflow.")] = None,
    deployment: Annotated[str | None, typer.Option(help="Only those of a deployment.")] = None,
    limit: Limit = 200,
    app: App = None,
    data: Data = None,
) -> None:
    """List runs, the newest first."""
    if context.invoked_subcommand is not None:
        return
    from bot.operate import actions, show  # noqa: PLC0415

    which = actions.Wanted(
        stranded=stranded,
        dormant_before=actions.started_at(data) if dormant else None,
        status=status,
        kind=kind,
        deployment=deployment,
    )
    show.runs(with_store(app, data, lambda store: actions.runs(store, which, limit=limit)))


@runs.command("retire")
def retire_runs(
    *,
    deployment: Annotated[str, typer.Option(help="The deployment whose open runs are listed, or ended.")],
    end: Annotated[bool, typer.Option("--end", help="End them for good; without it they are listed.")] = False,
    app: App = None,
    data: Data = None,
) -> None:
    """List or end what a deployment still has."""
    from bot.operate import actions, show  # noqa: PLC0415

    if not end:
        which = actions.Wanted(status="open", deployment=deployment)
        show.runs(with_store(app, data, lambda store: actions.runs(store, which, limit=10_000)))
        return
    ended = with_store(app, data, lambda store: actions.retire(store, deployment))
    show.lines([*ended, f"{len(ended)} runs of {deployment} were ended."])


def sessions(*, limit: Limit = 200, app: App = None, data: Data = None) -> None:
    """List open sessions, the newest first."""
    from bot.operate import actions, show  # noqa: PLC0415

    which = actions.Wanted(status="open", kind="session")
    show.runs(with_store(app, data, lambda store: actions.runs(store, which, limit=limit)))


def inspect(run: RunId, *, app: App = None, data: Data = None) -> None:
    """Show all there is of a run, decoded: its steps, what the pending one has recorded, requests, events."""
    from bot.operate import actions, show  # noqa: PLC0415

    show.inspection(with_store(app, data, lambda store: actions.inspect(store, run)))


def resume(run: RunId, *, app: App = None, data: Data = None) -> None:
    """Offer a stranded run to the code that runs, once more."""
    from bot.operate import actions, show  # noqa: PLC0415

    show.lines([with_store(app, data, lambda store: actions.resume(store, run))])


def cancel(run: RunId, *, app: App = None, data: Data = None) -> None:
    """Stop what a run does now; a session goes on with its next message."""
    from bot.operate import actions, show  # noqa: PLC0415

    show.lines([with_store(app, data, lambda store: actions.cancel(store, run))])


@outbox.callback()
def list_outbox(
    context: typer.Context,
    *,
    pending: Annotated[bool, typer.Option("--pending", help="What waits to be sent, in place of dead letters.")] = False,
    limit: Limit = 200,
    app: App = None,
    data: Data = None,
) -> None:
    """List dead letters: what no channel could send."""
    if context.invoked_subcommand is not None:
        return
    from bot.operate import actions, show  # noqa: PLC0415

    state = "pending" if pending else "dead"
    show.owed(with_store(app, data, lambda store: actions.owed(store, state=state, limit=limit)))


@outbox.command("replay")
def replay(
    delivery: Annotated[str, typer.Argument(metavar="DELIVERY", help="Id of a dead letter, dlv_….")],
    *,
    app: App = None,
    data: Data = None,
) -> None:
    """Send a dead letter again, behind what its address is owed by now."""
    from bot.operate import actions, show  # noqa: PLC0415

    show.lines([with_store(app, data, lambda store: actions.replay(store, delivery))])
