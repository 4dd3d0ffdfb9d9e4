"""What no database takes in a text, as a platform may still send it: refused for good, so that it isn't sent again and again."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.buttons import button_value
from durable_core.schema import upgrade
from tests.bot.session.test_runtime import App, outcome, request


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        found: str = request.getfixturevalue("migrated_url")
        return found
    made = f"sqlite:///{tmp_path / 'm.db'}"
    upgrade(made)
    return made


@pytest.mark.parametrize("field", ["who", "key", "address"])
async def test_a_nul_in_an_id_is_refused_for_good(tmp_path: Path, url: str, field: str) -> None:
    runtime = await App(tmp_path, url).open()
    taken = await runtime.take("fake", request(**({"who": "alice", "text": "hi", "key": "1"} | {field: "a\0b"})))
    assert (taken.response.status, taken.receipts) == (200, ())
    assert runtime.taker.counts["unstorable"] == 1
    await runtime.close()


async def test_a_nul_in_what_was_said_is_kept_as_it_was(tmp_path: Path, url: str) -> None:
    runtime = await App(tmp_path, url).open()
    (receipt,) = (await runtime.take("fake", request(who="alice", text="a\0b", key="1"))).receipts
    assert await outcome(runtime, receipt) is not None
    await runtime.close()


async def test_a_nul_in_a_button_is_refused_for_good(tmp_path: Path, url: str) -> None:
    runtime = await App(tmp_path, url).open()
    for number, value in enumerate((button_value("prm_\0", "approve"), button_value("prm_x", "a\0"), "\0")):
        taken = await runtime.take("fake", request(who="alice", click=value, key=f"c{number}"))
        assert (taken.response.status, taken.clicks) == (200, ())
    assert runtime.taker.counts["unstorable"] == 3
    await runtime.close()
