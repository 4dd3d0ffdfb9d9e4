"""Questions of workflow runs over HTTP: they are the conversation's, and answered by whom they name."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import ClientResponseError

from bot.agent import Agent
from bot.answerers import group
from bot.app import Bot
from bot.demo import deploy
from bot.operate import asking
from bot.principal import Principal
from bot.session_api import Response, ResponseStatus
from bot.testing import running
from bot.testing.app import App
from channels.events import Standing
from durable_core.context import WorkflowContext
from durable_core.operations import Option
from durable_core.registry import workflow

LOCAL = "api:local"


def person(name: str) -> Principal:
    return Principal(f"api:{name}", name.title(), Standing.MEMBER, channel="api")


@workflow(name="deploy")
async def by_finance(ctx: WorkflowContext, service: str) -> str:
    """Deploy a service that finance pays for."""
    answer = await ctx.ask("Pay?", options=[Option("yes", "Yes")], by=group("finance"), allow_freeform=True)
    return f"{answer.name}: {answer.option_id or answer.text}"


async def asked(app: App, message: str) -> tuple[str, dict[str, Any]]:
    """Begin a session and return its one open request, once there is one."""
    session_id = (await app.api("POST", "/v1/sessions", {"message": message}))["session_id"]
    changed = asyncio.Event()
    unwatch = app.runtime.store.watch(lambda _: changed.set())
    try:
        async with asyncio.timeout(30):
            while True:
                changed.clear()
                prompts = (await app.api("GET", f"/v1/sessions/{session_id}"))["open_prompts"]
                if prompts:
                    return session_id, prompts[0]
                await changed.wait()
    finally:
        unwatch()


async def test_a_question_of_a_run_is_the_session_s_and_answered_there() -> None:
    async with running(Bot(agents=[Agent("support", "scripted", tools=[deploy])])) as app:
        session_id, prompt = await asked(app, "deploy api")
        assert (prompt["kind"], [option["id"] for option in prompt["options"]]) == ("question", ["go", "stop"])
        listed = (await app.api("GET", f"/v1/prompts?session_id={session_id}&mine=true"))["prompts"]
        assert [(one["session_id"], one["request_id"]) for one in listed] == [(session_id, prompt["request_id"])]
        assert await asking.listed(app.runtime.store, session_id=session_id, undeliverable=False, limit=10)
        body = {"responses": [{"request_id": prompt["request_id"], "text": "Cancel"}]}
        (result,) = (await app.api("POST", f"/v1/sessions/{session_id}/responses", body))["results"]
        assert result["status"] == "settled"
        other = (await app.api("POST", "/v1/sessions", {}))["session_id"]
        with pytest.raises(ClientResponseError):  # it is of another session
            await app.api("POST", f"/v1/sessions/{other}/responses", body)


async def test_a_group_answers_a_run_in_anybody_s_session_and_the_requester_does_not() -> None:
    def in_finance(who: Principal) -> bool:
        return who.id == "api:farah"

    bot = Bot(agents=[Agent("support", "scripted", tools=[by_finance])], groups={"finance": in_finance})
    async with running(bot) as app:
        session_id, prompt = await asked(app, "deploy api")
        sessions = app.runtime.sessions
        answer = [Response(prompt["request_id"], text="Later, please.")]
        (refused,) = await sessions.respond(person("local"), session_id, responses=answer, key=None)
        assert (refused.status, refused.reason) == (ResponseStatus.REFUSED, "Only somebody in finance may answer this.")
        (settled,) = await sessions.respond(person("farah"), session_id, responses=answer, key=None)
        assert settled.status is ResponseStatus.SETTLED
        row = await app.runtime.store.prompt(prompt["request_id"])
        assert (row.option_id, row.settled_by) == ("", "api:farah")


async def test_a_run_is_no_session_whoever_asked_for_it() -> None:
    """Its session waits for its end: a message would vanish in it, and a reset would leave the session waiting for ever."""
    async with running(Bot(agents=[Agent("support", "scripted", tools=[deploy])])) as app:
        session_id, prompt = await asked(app, "deploy api")
        run_id = (await app.runtime.store.prompt(prompt["request_id"])).run_id
        assert run_id != session_id
        calls: list[tuple[str, str, Any]] = [
            ("GET", "", None),
            ("GET", "/events?follow=false", None),
            ("POST", "/messages", {"message": "hello"}),
            ("POST", "/cancel", {}),
            ("POST", "/reset", {}),
        ]
        for method, path, body in calls:
            with pytest.raises(ClientResponseError) as refused:
                await app.api(method, f"/v1/sessions/{run_id}{path}", body)
            assert refused.value.status == 404, path
        answer = {"responses": [{"request_id": prompt["request_id"], "option_id": "stop"}]}
        (settled,) = (await app.api("POST", f"/v1/sessions/{session_id}/responses", answer))["results"]
        assert settled["status"] == "settled"
        submission = await app.api("GET", f"/v1/submissions/{settled['submission_id']}")
        assert submission["session_id"] == run_id, "an answer is looked up, whatever asked"
