"""`moorings prompts`: which requests to people are open, answering one, deciding one by override.

What lives here: the commands and their options. What does not: what they do (asking.py), how it looks (show.py).
Whatever is heavy is imported inside a command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bot.operate.options import App, As, Data, Limit, RequestId, Role, with_store

if TYPE_CHECKING:
    from pathlib import Path

prompts = typer.Typer(help="Requests to people: those that are open, and answers to them.", invoke_without_command=True)

Session = Annotated[str | None, typer.Option(help="Only of a session.")]
Undeliverable = Annotated[bool, typer.Option("--undeliverable", help="Only those with a card that no channel could send.")]


@prompts.callback()
def list_by_default(
    context: typer.Context,
    *,
    session: Session = None,
    undeliverable: Undeliverable = False,
    limit: Limit = 200,
    app: App = None,
    data: Data = None,
) -> None:
    """List open requests, the oldest first."""
    if context.invoked_subcommand is None:
        _list(session, limit, app, data, undeliverable=undeliverable)


@prompts.command("list")
def list_requests(
    *,
    session: Session = None,
    undeliverable: Undeliverable = False,
    limit: Limit = 200,
    app: App = None,
    data: Data = None,
) -> None:
    """List open requests, the oldest first."""
    _list(session, limit, app, data, undeliverable=undeliverable)


def _list(session: str | None, limit: int, app: str | None, data: Path | None, *, undeliverable: bool) -> None:
    from bot.operate import asking, show  # noqa: PLC0415

    found = with_store(
        app, data, lambda store: asking.listed(store, session_id=session, undeliverable=undeliverable, limit=limit)
    )
    show.requests(found)


@prompts.command("show")
def show_request(request: RequestId, *, app: App = None, data: Data = None) -> None:
    """Show all that a request asks, where its cards are, and what was answered."""
    from bot.operate import asking, show  # noqa: PLC0415

    show.lines(with_store(app, data, lambda store: asking.told(store, request)))


@prompts.command("answer")
def answer(
    request: RequestId,
    option: Annotated[str, typer.Argument(metavar="OPTION", help="What is chosen, such as approve; - for words alone.")],
    *,
    principal: As,
    role: Role = None,
    text: Annotated[str, typer.Option(help="A note; with - in place of an option, the answer itself.")] = "",
    edit: Annotated[
        list[str] | None, typer.Option("--edit", metavar="NAME=JSON", help="An argument that is changed; needs --app.")
    ] = None,
    app: App = None,
    data: Data = None,
) -> None:
    """Answer for somebody, as they could themselves: whoever may not is refused."""
    from bot.operate import asking, show  # noqa: PLC0415

    given = asking.Given(
        option_id="" if option == "-" else option,
        principal=asking.person(principal, role or ()),
        text=text,
        edits=asking.edits_of(edit or (), app=app),
    )
    ended = with_store(app, data, lambda store: asking.answer(store, request, given, app=app))
    show.lines([ended.words])
    raise typer.Exit(0 if ended.counts else 1)


@prompts.command("override")
def override(
    request: RequestId,
    option: Annotated[str, typer.Argument(metavar="OPTION", help="What is decided, such as approve.")],
    *,
    reason: Annotated[str, typer.Option(help="Why; it stands on the card and in the audit.")],
    principal: As = "cli:operator",
    app: App = None,
    data: Data = None,
) -> None:
    """Decide a request whatever it says of who may answer."""
    from bot.operate import asking, show  # noqa: PLC0415

    why = asking.reason_of(reason)
    given = asking.Given(option_id=option, principal=asking.person(principal, ()), override=why)
    ended = with_store(app, data, lambda store: asking.answer(store, request, given, app=app))
    show.lines([ended.words])
    raise typer.Exit(0 if ended.counts else 1)
