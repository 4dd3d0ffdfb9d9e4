"""What `ctx.authorize` makes of what it is told, and of an engine that lends nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from durable_core import Authorized, Engine, NotAuthorized
from durable_core.authorizing import NOBODY, authorized
from durable_core.context import WorkflowContext
from durable_core.crypto import KeyRing
from durable_core.operations import Answer, AskOptions
from durable_core.registry import workflow

ASK = {"ask": {"a": 1}, "expires_ms": 5, "granted": "yes", "declined": "declined", "late": "late", "lost": "lost"}


async def outcome(looks: list[Mapping[str, Any]], answer: Answer | None = None) -> tuple[Authorized | str, list[AskOptions]]:
    asked: list[AskOptions] = []

    async def look() -> Mapping[str, Any]:
        return looks.pop(0)

    async def ask(question: AskOptions) -> tuple[Answer, bool]:
        asked.append(question)
        assert answer is not None
        return answer, True

    try:
        return await authorized(look, ask), asked
    except NotAuthorized as error:
        return error.reason, asked


async def test_without_a_question() -> None:
    assert await outcome([{"account": "alice"}]) == (Authorized(account="alice"), [])
    assert await outcome([{"denied": "no"}]) == ("no", [])


@pytest.mark.parametrize(
    ("answer", "then", "expected"),
    [
        (Answer(option_id="yes"), {"account": "alice"}, Authorized(account="alice")),
        (Answer(option_id="yes"), ASK, "lost"),
        (Answer(option_id="yes"), {"denied": "no"}, "no"),
        (Answer(option_id="no"), None, "declined"),
        (Answer(option_id="no", text="why"), None, "why"),
        (Answer(expired=True), None, "late"),
        (Answer(cancelled=True), None, "declined"),
    ],
)
async def test_with_one(answer: Answer, then: Any, expected: Any) -> None:
    found, [question] = await outcome([ASK, then], answer)
    assert found == expected
    assert question.about == {"a": 1}
    assert question.expires is not None


@workflow
async def asks(ctx: WorkflowContext) -> str:
    try:
        await ctx.authorize("anything")
    except NotAuthorized as error:
        return error.reason
    return "?"


async def test_an_engine_alone_signs_nobody_in(tmp_path: Any) -> None:
    keys = KeyRing.parse("k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
    async with Engine(f"sqlite:///{tmp_path}/moorings.db", workflows=[asks], keys=keys) as engine:
        assert await (await engine.start(asks)).result() == NOBODY
