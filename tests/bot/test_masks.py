"""Secrets by annotation: at any depth the value runs and a mask is shown; what can't be told apart is masked whole."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr

from bot.approvals import Approval
from bot.context import ToolContext
from bot.errors import BadTool
from bot.history import ResultStatus
from bot.masks import Secret
from bot.tools import tool
from tests.bot.people import ALICE

KEY = "sk-1234567890"


class Login(BaseModel):
    user: str
    password: Annotated[str, Field(max_length=40), Secret]


@dataclass
class Card:
    number: Annotated[int, Secret]
    holder: str = "A"


NONE = SecretStr("x")


@tool
async def connect(  # noqa: PLR0917 - a tool's arguments are named
    ctx: ToolContext,
    host: str,
    token: Annotated[str, Secret] = "none",
    logins: list[Login] | None = None,
    headers: dict[str, Annotated[str, Secret]] | None = None,
    card: Card | None = None,
    other: SecretStr = NONE,
    amount: Decimal = Decimal("1.50"),
) -> dict[str, Any]:
    """Connect somewhere."""
    return {"token": token, "logins": logins, "headers": headers, "other": other.get_secret_value()}


GIVEN: dict[str, Any] = {
    "host": "db",
    "token": KEY,
    "logins": [{"user": "a", "password": KEY}],
    "headers": {"X": KEY},
    "card": {"number": 4111111111111111},
    "other": KEY,
    "amount": "2.50",
}


def test_they_are_found_at_any_depth_and_the_model_sees_a_plain_schema() -> None:
    assert connect.secret == ("token", "logins", "headers", "card", "other")
    assert "writeOnly" not in str(connect.schema)
    assert connect.schema["properties"]["token"]["type"] == "string"  # type: ignore[index,call-overload]


async def test_the_tool_gets_the_value() -> None:
    outcome = await connect.run(ToolContext("ses_1", ALICE, call_id="0.0.0", deps=None), GIVEN)
    assert outcome.status is ResultStatus.COMPLETED
    assert outcome.content == {
        "token": KEY,
        "logins": [{"user": "a", "password": KEY}],
        "headers": {"X": KEY},
        "other": KEY,
    }


def test_people_see_masks() -> None:
    assert connect.shown(GIVEN) == {
        "host": "db",
        "token": "•••",
        "logins": [{"user": "a", "password": "•••"}],
        "headers": {"X": "•••"},
        "card": {"number": "•••", "holder": "A"},
        "other": "**********",
        "amount": "2.50",
    }
    call = connect.call(GIVEN, "0.0.0", requester=ALICE)
    assert {name: call.text_of(name) for name in call.arguments} == {
        "host": "db",
        "token": "•••",
        "logins": '[{"user": "a", "password": "•••"}]',
        "headers": '{"X": "•••"}',
        "card": '{"number": "•••", "holder": "A"}',
        "other": "**********",
        "amount": "2.50",
    }
    assert KEY not in repr(call)


@pytest.mark.parametrize(
    "ask", ["{host} with {token}, {logins}?", lambda call: f"{call.arguments}?", lambda call: call.arguments["token"]]
)
def test_no_question_tells_them(ask: Any) -> None:
    question = Approval(ask=ask).question(connect.call(GIVEN, "0.0.0", requester=ALICE))
    assert KEY not in question
    assert "4111111111111111" not in question
    assert "•••" in question


def test_arguments_that_are_not_valid_are_masked_whole() -> None:
    assert connect.shown({"host": 5, "tokn": KEY}) == {"host": "•••", "tokn": "•••"}


def test_a_tool_without_secrets_shows_what_the_model_wrote() -> None:
    @tool
    async def plain(ctx: ToolContext, amount: Decimal) -> None: ...

    given: dict[str, Any] = {"amount": 5, "odd": 1}
    assert plain.shown(given) is given
    assert plain.secret == ()


def test_nobody_may_edit_what_they_do_not_see() -> None:
    with pytest.raises(BadTool, match="which is secret"):
        tool(approval=Approval(edit=["logins"]))(connect.function)


@given(st.text(min_size=4), st.text(min_size=4))
def test_no_text_of_it_is_ever_shown(token: str, password: str) -> None:
    try:
        shown = str(connect.shown({"host": "db", "token": token, "logins": [{"user": "a", "password": password}]}))
    except UnicodeEncodeError:
        return
    plain = str(connect.shown({"host": "db", "token": "T", "logins": [{"user": "a", "password": "P"}]}))
    assert shown in (plain, str({"host": "•••", "token": "•••", "logins": "•••"}))
