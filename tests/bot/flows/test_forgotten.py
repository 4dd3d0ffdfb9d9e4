"""Forgetting somebody whose account workflows and tools have acted with, on each database: nothing that it brought can be read.

What lives here: a whole app, and every sealed value of it opened. What does not: words that people wrote
(session/test_forget.py), answers to workflows (test_forget_workflows.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from bot.connections.connection import OAuthConnection
from bot.context import ToolContext
from bot.flows import connected
from bot.forget import forget_principal
from bot.history import Usage
from bot.model import ModelReply, ModelRequest, OnText
from bot.redaction import RESULT_DELETED
from bot.settings import Settings, sqlite_url
from bot.testing.app import App
from bot.tools import tool
from durable_core import codec
from durable_core.context import WorkflowContext
from durable_core.crypto import KeyRing, SessionKey, new_key_entry
from durable_core.registry import step, workflow
from durable_core.stores import sealing
from tests.bot.flows.connecting import GRANT, connect
from tests.bot.flows.threads import ENDED, PARKED, Obeying, posted, session_of, thread, until
from tests.bot.signins.authority import Authority, authority

FOUND = "what Alice alone can read"
HELLO = "hello there"
BODIES = (
    ("moor_command", "body", ("seq",)),
    ("moor_step", "input", ("n",)),
    ("moor_step", "output", ("n",)),
    ("moor_record", "body", ("step_n", "key")),
    ("moor_event", "body", ("seq",)),
    ("moor_prompt", "body", ("prompt_id",)),
    ("moor_outbox", "body", ("delivery_id",)),
    ("moor_admission", "detail", ("submission_id",)),
)


class Discreet(Obeying):
    """Says nothing of what it has found."""

    async def reply(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        made = await super().reply(request, on_text)
        return made if made.calls else ModelReply("Seen." if FOUND in made.text else HELLO, usage=Usage(1, 1), model=self.name)


@pytest.fixture
async def provider() -> AsyncIterator[Authority]:
    async with authority() as made:
        yield made


@pytest.fixture
def tracker(provider: Authority) -> OAuthConnection:
    names: dict[str, Any] = {f"{name}_url": f"{provider.url}/{name}" for name in ("device", "token", "userinfo", "revoke")}
    return OAuthConnection(
        "tracker", title="Tracker", client_id="app", grant="device", scopes=["issues"], hosts=[provider.url], **names
    )


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    if request.param == "sqlite":
        url = sqlite_url(tmp_path)
    else:
        given = make_url(request.getfixturevalue("migrated_url"))
        url = given.set(drivername="postgresql").render_as_string(hide_password=False)
    return Settings(tmp_path, url, encryption_keys=new_key_entry(), deployment="test", public_url="http://127.0.0.1:8700")


def flow(connection: OAuthConnection) -> list[object]:
    """A tool, a workflow that ends and one that goes on: each has read something with an account."""

    @step(name="read")
    async def read() -> str:
        await connected(connection).get("/userinfo")
        return FOUND

    @workflow
    async def visit(ctx: WorkflowContext, service: str) -> str:
        """Visit the tracker."""
        await ctx.authorize(connection)
        found = await ctx.step(read)
        ctx.progress(f"so far: {found}")
        if service == "forever":
            await ctx.sleep(3_600)
        return found

    @tool(effect="read", connections=[connection])
    async def look(ctx: ToolContext, service: str) -> str:
        """Look at the tracker."""
        await ctx.http(connection).get("/userinfo")
        return FOUND

    return [visit, look]


async def readable(app: App, keys: str) -> list[str]:
    """Open all that the database holds of anybody."""
    store, ring = app.runtime.store, KeyRing.parse(keys)
    found = []
    for run_id, wrapped in await store.rows("SELECT run_id, session_key FROM moor_run WHERE purged_at IS NULL", {}):
        assert isinstance(run_id, str)
        assert isinstance(wrapped, bytes)
        key = SessionKey(ring.unwrap(wrapped, f"moor_run/{run_id}/session_key".encode()))
        for table, column, names in BODIES:
            sql = f"SELECT {column}, {', '.join(names)} FROM {table} WHERE run_id = :run_id AND length({column}) > 0"
            for sealed, *rest in await store.rows(sql, {"run_id": run_id}):
                assert isinstance(sealed, bytes)
                place = sealing.Place(table, "/".join(str(one) for one in rest), column)
                opened = key.open(sealed, table=place.table, row=place.row(run_id), column=place.column)
                found.append(f"{run_id} {place.rest} {table}.{column}: {codec.decode(opened)!r}")
    return found


async def test_nothing_can_be_read_of_what_an_account_brought(
    provider: Authority, tracker: OAuthConnection, settings: Settings
) -> None:
    provider.polled = [GRANT]
    async with thread(*flow(tracker), model=Discreet(), connections=[tracker], settings=settings) as (slack, app):
        asked = await slack.mention("bob", "general", "good morning")
        await posted(slack, asked, HELLO)
        await slack.mention("alice", "general", "look around", asked)
        await connect(slack, app)
        await posted(slack, asked, "Seen.")
        await slack.mention("alice", "general", "visit home", asked)
        await until(app, ENDED)
        await slack.mention("alice", "general", "visit forever", asked)
        await until(app, PARKED)
        [(alice,)] = set(await app.runtime.store.rows("SELECT creator FROM moor_run WHERE kind = 'workflow'", {}))
        session, _ = await session_of(app)
        before = [line for line in await readable(app, settings.encryption_keys or "") if FOUND in line]
        assert {line.split(": ")[0].rsplit(" ", 1)[1] for line in before} == {
            "moor_command.body",
            "moor_event.body",
            "moor_outbox.body",
            "moor_record.body",
            "moor_step.output",
        }
        done = await forget_principal(app.runtime.store, str(alice), by="operator", seconds=10)
        assert (len(done.sessions), list(done.redacted), done.needed) == (2, [session], ())
        after = await readable(app, settings.encryption_keys or "")
        assert [line for line in after if FOUND in line] == []
        assert [line for line in after if RESULT_DELETED in line and "moor_command.body" in line]
        again = await forget_principal(app.runtime.store, str(alice), by="operator", seconds=10)
        assert (again.sessions, again.redacted) == ((), {})
        await slack.mention("bob", "general", "still there?", asked)
        await slack.until(lambda: len([one for one in slack.replies(asked) if HELLO in one.words]) > 1)
