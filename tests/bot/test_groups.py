"""Groups that may answer: roles, functions and the platforms' own; every doubt keeps somebody out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot.answerers import Group, Groups
from bot.app import Bot
from bot.errors import BadApp
from bot.principal import Principal
from channels.errors import RateLimited
from channels.events import Author, Standing
from tests.bot.people import ALICE, BOB, FARAH, NOBODY


def may(principal: Principal) -> bool:
    return principal.id == BOB.id


async def may_later(principal: Principal) -> bool:
    await asyncio.sleep(0)
    return principal.id == BOB.id


class Platform:
    """A group that a channel keeps: knows platform ids only."""

    channel = "console"

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.asked: list[Author] = []

    async def includes(self, author: Author) -> bool:
        self.asked.append(author)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return author.id == "bob" if self.answer is None else bool(self.answer)


@pytest.mark.parametrize("resolver", [may, may_later, Platform()])
async def test_a_resolver_says_who_is_in_it_and_roles_no_longer_do(resolver: Any) -> None:
    groups = Groups(resolvers={"finance": resolver})
    assert [await groups.includes("finance", person) for person in (BOB, FARAH, ALICE, NOBODY)] == [True, False, False, False]


async def test_without_a_resolver_roles_say_it() -> None:
    groups = Groups(resolvers={"support": may})
    assert [await groups.includes("finance", person) for person in (BOB, FARAH, NOBODY)] == [False, True, False]


async def hangs(principal: Principal) -> bool:
    await asyncio.Event().wait()
    return True


def fails(principal: Principal) -> bool:
    raise SystemExit


@pytest.mark.parametrize(
    "resolver", [hangs, fails, lambda _: 1, lambda _: None, Platform(RateLimited(9.0)), Platform(SystemExit())]
)
async def test_every_doubt_excludes(resolver: Any) -> None:
    assert not await Groups(resolvers={"finance": resolver}, seconds=0.01).includes("finance", BOB)


async def test_a_platforms_group_is_asked_about_its_own_people_in_its_own_words() -> None:
    platform = Platform()
    groups = Groups(resolvers={"finance": platform})
    assert not await groups.includes("finance", Principal("api:bob", "Bob", Standing.MEMBER, channel="api"))
    assert not await groups.includes("finance", Principal("console:T%3A1:eve", "Eve", Standing.MEMBER, channel="console"))
    assert [(author.id, author.tenancy) for author in platform.asked] == [("eve", "T:1")]


def test_what_resolves_nothing_keeps_the_app_from_starting() -> None:
    with pytest.raises(BadApp) as caught:
        Bot(agents=[], groups={"finance": "U1"}).check()  # type: ignore[dict-item]
    assert any("groups['finance'] must be a function" in problem for problem in caught.value.problems)
    assert Group("finance") == Group("finance")
