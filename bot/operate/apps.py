"""`moorings explain` and `moorings surface`: what an app would do with a call, and all that it can do.

What lives here: the commands, their options, and what they print. What does not: gates (bot/explain.py), rows (bot/surface.py).
Whatever is heavy is imported inside a command.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bot.operate.options import As, Role, TheApp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.app import Bot
    from bot.explain import Gate
    from bot.principal import Principal
    from bot.tools import Tool

Json = Annotated[str, typer.Argument(metavar="JSON", help="The arguments, as a JSON object.")]


def add_to(commands: typer.Typer) -> None:
    """Put the commands beside the others."""
    commands.command()(explain)
    commands.command()(surface)


def explain(
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="A tool's name, or agent.tool where several agents have it.")],
    arguments: Json = "{}",
    *,
    app: TheApp,
    principal: As,
    role: Role = None,
    tainted: Annotated[bool, typer.Option("--tainted", help="As if untrusted content had been read before.")] = False,
    granted: Annotated[bool, typer.Option("--granted", help="As if an earlier yes counted for it.")] = False,
) -> None:
    """Say what would happen to a call, gate by gate, without making it."""
    import asyncio  # noqa: PLC0415

    from bot import preflight  # noqa: PLC0415
    from bot.operate import show  # noqa: PLC0415
    from bot.operate.asking import person  # noqa: PLC0415

    bot = preflight.load_app(app)
    asker = person(principal, role or ())
    found = asyncio.run(_gates(bot, tool_of(bot, tool), arguments, asker=asker, tainted=tainted, granted=granted))
    width = max(len(gate.name) for gate in found)
    show.lines([f"{gate.stand:<6}  {gate.name:<{width}}  {gate.says}" for gate in found])


async def _gates(bot: Bot, tool: Tool, arguments: str, *, asker: Principal, tainted: bool, granted: bool) -> Sequence[Gate]:
    from bot import explain as explaining  # noqa: PLC0415
    from bot.access import Action, Deny, decide  # noqa: PLC0415
    from bot.answerers import POLICY_SECONDS, Groups  # noqa: PLC0415
    from bot.deciding import Deciding  # noqa: PLC0415
    from channels.events import Place  # noqa: PLC0415

    decision = await decide(bot.access, asker, Place("channel"), Action.MESSAGE, seconds=POLICY_SECONDS)
    if isinstance(decision, Deny):
        return [explaining.Gate("access", f"{asker.id} may not talk to the bot: {decision.text}", "stops")]
    access = explaining.Gate("access", f"{asker.id} may talk to the bot.", "passes")
    deciding = Deciding(groups=Groups(resolvers=bot.groups))
    return [access, *await explaining.explain(tool, asker, arguments, deciding=deciding, tainted=tainted, granted=granted)]


def tool_of(bot: Bot, name: str) -> Tool:
    """Find a tool by its name, or by its agent's and its own.

    Raises: NotReady.
    """
    from bot.errors import NotReady  # noqa: PLC0415

    agent_name, dot, tool_name = name.rpartition(".")
    found = [
        (agent.name, tool)
        for agent in bot.agents
        for tool in agent.gated
        if tool.name == tool_name and (not dot or agent.name == agent_name)
    ]
    if not found:
        known = ", ".join(sorted({tool.name for agent in bot.agents for tool in agent.gated})) or "none"
        raise NotReady(f"There is no tool {name}. The tools are: {known}.")
    if len(found) > 1:
        choice = ", ".join(f"{agent}.{tool_name}" for agent, _ in found)
        raise NotReady(f"Several agents have a tool {name}; name one: {choice}.")
    return found[0][1]


def surface(
    *,
    app: TheApp,
    check: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Compare with a stored page; exit code 1 if it differs."),
    ] = None,
) -> None:
    """Print what an app can do and who has a say in it, on one page that is the same for equal apps."""
    from bot import preflight  # noqa: PLC0415

    text = page(preflight.load_app(app))
    if check is None:
        typer.echo(text, nl=False)
        return
    lines = differences(text, check)
    for line in lines:
        typer.echo(line)
    if lines:
        cure = f"moorings surface --app {app} > {check}"
        typer.echo(f"This is not what {check} says. If it is meant, store it: {cure}", err=True)
        raise typer.Exit(1)


def page(bot: Bot) -> str:
    """Write the page."""
    from bot.surface import surface as rows_of  # noqa: PLC0415

    rows = rows_of(bot.agents, access=bot.access, groups=bot.groups)
    lines = [f"content is kept {bot.retention.days} days after a session's end"]
    for row in rows:
        lines += ["", f"{row.agent}.{row.tool} ({row.effect})"]
        told = {
            "starts": row.starts,
            "asks": row.asks,
            "approves": row.approves,
            "after untrusted content": row.untrusted,
            "secret": ", ".join(row.secret),
            "accounts": ", ".join(row.accounts),
            "scopes": ", ".join(row.scopes),
            "hosts": ", ".join(row.hosts),
        }
        lines += [f"  {name}: {value}" for name, value in told.items() if value]
    return "\n".join(lines) + "\n"


def differences(text: str, stored: Path) -> list[str]:
    """Return the lines of a unified diff; none where the stored page says the same.

    Raises: NotReady.
    """
    import difflib  # noqa: PLC0415

    from bot.errors import NotReady  # noqa: PLC0415

    try:
        before = stored.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise NotReady(f"{stored} can't be read: {error}") from error
    both = (before.splitlines(), text.splitlines())
    return list(difflib.unified_diff(*both, fromfile=str(stored), tofile="the app", lineterm="", n=1))
