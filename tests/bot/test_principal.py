"""Principals: their JSON form, and nobody."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from bot.principal import Principal
from channels.events import Standing
from tests.bot.people import FARAH, NOBODY

TEXT = st.text(max_size=20)


@given(st.builds(Principal, TEXT, TEXT, st.sampled_from(Standing), st.frozensets(TEXT, max_size=3), TEXT))
def test_a_principal_comes_back_equal_through_json_text(principal: Principal) -> None:
    assert Principal.from_json(json.loads(json.dumps(principal.to_json()))) == principal


def test_a_standing_from_a_newer_version_may_do_nothing() -> None:
    assert Principal.from_json({**FARAH.to_json(), "standing": "emperor"}).standing is Standing.UNKNOWN


def test_only_an_empty_id_is_anonymous() -> None:
    assert NOBODY.anonymous
    assert not FARAH.anonymous
