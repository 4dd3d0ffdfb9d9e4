"""Access: the default lets full members in where nobody outside reads along."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.access import Action, Allow, Decision, Deny, decide, members_only
from bot.principal import Principal
from channels.events import Place, Standing
from tests.bot.people import ALICE, FARAH, GUEST, NOBODY

THREAD = Place("channel")
SHARED = Place("channel", shared_outside=True)


@pytest.mark.parametrize("action", Action)
def test_members_may_do_everything_at_home_and_nothing_in_shared_places(action: Action) -> None:
    assert members_only(ALICE, THREAD, action) == Allow()
    assert members_only(FARAH, Place("direct"), action) == Allow()
    assert members_only(ALICE, Place("api"), action) == Allow()
    assert isinstance(members_only(ALICE, SHARED, action), Deny)


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("standing", sorted(set(Standing) - {Standing.MEMBER}))
@pytest.mark.parametrize("place", [THREAD, SHARED, Place("direct"), Place("api")])
def test_others_may_do_nothing_anywhere(action: Action, standing: Standing, place: Place) -> None:
    decision = members_only(replace(ALICE, standing=standing), place, action)
    assert isinstance(decision, Deny)
    assert decision.reason == standing.value
    assert decision.text


def test_a_member_without_identity_is_refused() -> None:
    assert members_only(replace(NOBODY, standing=Standing.MEMBER), THREAD, Action.MESSAGE) == Deny(
        "anonymous", "This bot answers only people it can tell apart."
    )


async def test_a_policy_may_be_plain_or_async() -> None:
    async def later(principal: Principal, place: Place, action: Action) -> Decision:
        return Allow() if principal == GUEST else Deny("other")

    assert await decide(members_only, ALICE, THREAD, Action.CLICK) == Allow()
    assert await decide(later, GUEST, THREAD, Action.CLICK) == Allow()
    assert await decide(later, ALICE, THREAD, Action.CLICK) == Deny("other")


@pytest.mark.parametrize("answer", [None, True, "allow", Allow])
async def test_what_is_no_decision_refuses(answer: Any) -> None:
    assert await decide(lambda *_: answer, ALICE, THREAD, Action.API) == Deny("no_decision")


async def test_a_failed_look_up_is_passed_on() -> None:
    def broken(principal: Principal, place: Place, action: Action) -> Decision:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await decide(broken, ALICE, THREAD, Action.API)
