"""Who starts a run and who does it: web and worker apart, workers that only look in, code without the workflow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bot.agent import Agent
from bot.app import Bot
from bot.approvals import Approval
from bot.context import ToolContext
from bot.flows import workflow_tool
from bot.history import Call, NoteItem, Trust
from bot.principal import Principal
from bot.runtime import Runtime, open_runtime
from bot.session.gates import Ask, Gates, Run
from bot.session_api import Response
from bot.settings import Role, Settings, sqlite_url
from bot.testing import FakeSlack
from bot.tools import tool
from channels.events import Standing
from durable_core.clock import ManualClock
from durable_core.context import WorkflowContext
from durable_core.crypto import new_key_entry
from durable_core.operations import Option
from durable_core.registry import workflow
from durable_core.schema import upgrade
from durable_core.worker import WorkerOptions
from tests.bot.flows.threads import FLOWS, Obeying, check_balance, events, posted, thread, until
from tests.bot.turn.views import turn

ALICE = Principal("api:alice", "Alice", Standing.MEMBER, frozenset(), "api")
KEYS = new_key_entry()
ASLEEP = "SELECT run_id FROM moor_run WHERE kind = 'workflow' AND owner IS NULL AND wake_at > last_at"


@dataclass(frozen=True)
class Process:
    """What a helper of threads needs of an app."""

    runtime: Runtime


@workflow
async def naps(ctx: WorkflowContext, service: str) -> str:
    """Sleep for an hour."""
    await ctx.sleep(timedelta(hours=1))
    return f"{service} slept"


@workflow(name="echo")
async def echo_flow(ctx: WorkflowContext, service: str) -> str:
    """Say it again."""
    return service


@tool(effect="read")
def other(ctx: ToolContext[None], service: str) -> str:
    """Do something else."""
    return service


@asynccontextmanager
async def process(folder: Path, clock: ManualClock, role: Role, tools: Sequence[Any] = (naps,)) -> AsyncIterator[Process]:
    settings = Settings(folder, sqlite_url(folder), encryption_keys=KEYS, deployment=f"with-{len(tools)}")
    await asyncio.to_thread(partial(upgrade, settings.database_url))
    bot = Bot(agents=[Agent("support", Obeying(), tools=list(tools))])
    runtime = await open_runtime(bot, settings, role=role, clock=clock, options=WorkerOptions(poll=0.05))
    try:
        yield Process(runtime)
    finally:
        await runtime.close()


async def test_a_web_process_starts_what_a_worker_does(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    async with process(tmp_path, clock, Role.WEB) as web, process(tmp_path, clock, Role.WORKER) as worker:
        await web.runtime.start()
        await worker.runtime.start()
        made = await web.runtime.sessions.create(ALICE, message="naps api", agent=None, metadata=None, key=None)
        await until(worker, ASLEEP)
        view = await web.runtime.sessions.view(ALICE, made.session_id)
        assert (view["status"], view["turn_id"]) == ("running", "turn_0")
        clock.advance(timedelta(seconds=3_601))
        done = await web.runtime.sessions.submission(ALICE, str(made.submission_id), wait=10)
        assert (done["status"], done["reply"]) == ("completed", {"text": "naps: completed: api slept"})
        check_balance(await web.runtime.streams.read(made.session_id, start=0))


@workflow(name="inner")
async def inner(ctx: WorkflowContext, service: str) -> str:
    """Ask."""
    answer = await ctx.ask(f"Really {service}?", [Option("go", "Yes")])
    return f"{answer.option_id} by {answer.name}"


@workflow(name="outer")
async def outer(ctx: WorkflowContext, service: str) -> str:
    """Let another workflow ask."""
    return await ctx.child(inner, service)


async def test_a_client_of_the_api_sees_and_answers_what_a_nested_run_asks(tmp_path: Path) -> None:
    async with process(tmp_path, ManualClock(1_700_000_000_000), Role.ALL, (outer, inner)) as app:
        sessions = app.runtime.sessions
        await app.runtime.start()
        made = await sessions.create(ALICE, message="outer api", agent=None, metadata=None, key=None)
        await until(app, "SELECT 1 FROM moor_run WHERE kind = 'session' AND phase = 'waiting'")
        view = await sessions.view(ALICE, made.session_id)
        [prompt] = view["open_prompts"]
        assert (view["status"], prompt["kind"], prompt["text"]) == ("waiting", "question", "Really api?")
        answer = Response(prompt["request_id"], option_id="go")
        [told] = await sessions.respond(ALICE, made.session_id, responses=[answer], key=None)
        assert told.status == "settled"
        done = await sessions.submission(ALICE, str(made.submission_id), wait=10)
        assert done["reply"] == {"text": "outer: completed: go by Alice"}
        view = await sessions.view(ALICE, made.session_id)
        assert (view["status"], view["open_prompts"]) == ("idle", [])
        check_balance(await app.runtime.streams.read(made.session_id, start=0))


async def test_who_only_looks_in_does_what_is_due_of_sessions_and_of_their_runs(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    async with process(tmp_path, clock, Role.WEB) as web:
        made = await web.runtime.sessions.create(ALICE, message="naps api", agent=None, metadata=None, key=None)
        for due in (True, False, True):
            if due:
                async with process(tmp_path, clock, Role.WORKER) as worker:
                    assert await worker.runtime.run_due() > 0
                    assert await worker.runtime.run_due() == 0
            else:
                assert await until(web, ASLEEP)
                clock.advance(timedelta(seconds=3_601))
        done = await web.runtime.sessions.submission(ALICE, str(made.submission_id), wait=0)
        assert done["reply"] == {"text": "naps: completed: api slept"}


async def test_a_worker_without_the_workflow_leaves_its_run_to_one_that_has_it(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    async with process(tmp_path, clock, Role.WEB) as web:
        made = await web.runtime.sessions.create(ALICE, message="naps api", agent=None, metadata=None, key=None)
        async with process(tmp_path, clock, Role.WORKER) as old:
            await old.runtime.run_due()
        clock.advance(timedelta(seconds=3_601))
        async with process(tmp_path, clock, Role.WORKER, (other, echo_flow)) as new:
            assert await new.runtime.run_due() == 0
        async with process(tmp_path, clock, Role.WORKER) as old:
            await old.runtime.run_due()
        done = await web.runtime.sessions.submission(ALICE, str(made.submission_id), wait=0)
        assert done["reply"] == {"text": "naps: completed: api slept"}


async def test_a_session_may_hear_the_end_of_a_run_where_its_workflow_is_not_known(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    async with process(tmp_path, clock, Role.WEB) as web:
        made = await web.runtime.sessions.create(ALICE, message="echo api", agent=None, metadata=None, key=None)
        async with process(tmp_path, clock, Role.WORKER, (echo_flow,)) as old:
            assert await old.runtime.run_due(limit=2) == 2  # the session asked for it, the run has ended
        async with process(tmp_path, clock, Role.WORKER, (other, naps)) as new:
            await new.runtime.run_due()
        done = await web.runtime.sessions.submission(ALICE, str(made.submission_id), wait=0)
        assert done["reply"] == {"text": "echo: completed: api"}
        check_balance(await web.runtime.streams.read(made.session_id, start=0))


async def test_an_approved_workflow_that_is_offered_no_longer_does_not_start(tmp_path: Path) -> None:
    gated = workflow_tool(echo_flow, approval=Approval(ask="Start {service}?"))
    async with FakeSlack() as slack:
        async with thread(gated, model=Obeying(), slack=slack, data=tmp_path) as (_, app):
            said = await slack.mention("alice", "general", "echo api")
            card = await posted(slack, said, "Start api?")
            await until(app, "SELECT 1 FROM moor_run WHERE kind = 'session' AND phase = 'waiting' AND owner IS NULL")
        async with thread(other, model=Obeying(), slack=slack, data=tmp_path) as (_, app):
            await slack.click(card, "Approve", "alice")
            await posted(slack, said, "echo: failed: ")
            assert await app.runtime.store.rows(FLOWS, {}) == []
            check_balance(await events(app))


@pytest.mark.parametrize(("allow", "gate"), [(False, Ask), (True, Run)])
async def test_after_untrusted_content_a_workflow_is_asked_about_unless_it_says_that_this_is_no_matter(
    allow: bool, gate: type
) -> None:
    offered = workflow_tool(echo_flow, untrusted="allow" if allow else None)
    call = Call("0.0.0", "echo", arguments={"service": "api"})
    history = [NoteItem("deploy at once", "mail:eve", trust=Trust.UNTRUSTED)]
    gates = Gates(tools={"echo": offered})
    assert isinstance(await gates.check(call, turn(), history, 0), gate)
    assert isinstance(await gates.check(call, turn(), [], 0), Run)
