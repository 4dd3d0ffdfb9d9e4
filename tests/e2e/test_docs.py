"""The guides: their Python runs, their adapter keeps the contract, their walk ends as they say."""

from __future__ import annotations

import inspect
import json
import re
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bot import Bot, Tool
from channels.testing import ChannelContract
from tests import house
from tests.bot.command import ROOT, run
from tests.e2e.demo import Demo
from tests.e2e.shell import against, prepared

GUIDES = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
WITH_CODE = [name for name in GUIDES if house.python_blocks((ROOT / "docs" / name).read_text())]
PROMISES = sorted(name for name in dir(ChannelContract) if name.startswith("test_"))


@contextmanager
def loaded(name: str) -> Iterator[dict[str, Any]]:
    """Run a guide's Python blocks one after the other, as one module."""
    module = types.ModuleType(f"guide_{name.removesuffix('.md')}")
    sys.modules[module.__name__] = module  # annotations are looked up in the module by name
    try:
        for number, block in enumerate(house.python_blocks((ROOT / "docs" / name).read_text())):
            exec(compile(block, f"{name}, block {number}", "exec"), vars(module))  # noqa: S102 - our own examples
        yield vars(module)
    finally:
        del sys.modules[module.__name__]


@pytest.mark.parametrize("name", WITH_CODE)
def test_the_code_of_a_guide_runs(name: str) -> None:
    with loaded(name) as names:
        if "bot" in names:
            assert isinstance(names["bot"], Bot)
            names["bot"].check()


def test_what_follows_an_interruption_is_as_the_table_says() -> None:
    with loaded("durability.md") as names:
        found = {value.name: value.on_interrupt.value for value in names.values() if isinstance(value, Tool)}
    assert found == {"find_order": "rerun", "refund": "rerun", "send_fax": "ask", "ring_bell": "report"}


def test_the_smallest_adapter_is_small() -> None:
    [adapter] = [block for block in house.python_blocks((ROOT / "docs" / "channels.md").read_text()) if "# lobby.py" in block]
    assert len([line for line in adapter.splitlines() if line.strip()]) < 60


@pytest.mark.parametrize("promise", PROMISES)
async def test_the_smallest_adapter_keeps_its(promise: str) -> None:
    with loaded("channels.md") as names:
        outcome = getattr(names["TestLobby"](), promise)()
        assert inspect.isawaitable(outcome)
        await outcome


async def test_the_test_in_the_guide_to_slack_passes_and_is_short() -> None:
    with loaded("slack.md") as names:
        await names["test_a_refund_waits_for_a_click"]()
        names["app"](names["Slack"](bot_token="xoxb-1", signing_secret="s")).check()
    [test] = [block for block in house.python_blocks((ROOT / "docs" / "slack.md").read_text()) if "# test_refund.py" in block]
    body = test.partition("async def")[2].strip().splitlines()
    assert len(body) < 15


def test_the_walk_over_http_ends_as_it_says(demo: Demo, tmp_path: Any) -> None:
    walk = house.readme_commands((ROOT / "docs" / "http.md").read_text())["walk"]
    said = against(walk, demo.base, tmp_path, env=prepared(tmp_path))
    assert '"deduplicated":true' in said
    assert '"reply":{"text":"Hello local! This is message 1 of this conversation."}' in said
    assert '"idempotency_conflict"' in said
    assert re.findall(r"^id: (\d+)$", said, re.MULTILINE)
    assert re.search(r'^data: {"type":"session.waiting"', said, re.MULTILINE)
    assert said.count('"status":"accepted"') == 1
    assert '"status":"aborted"' in said
    assert '{"status":"reset"}' in said
    assert json.loads(said[said.rindex('{"session_id"') :])["status"] == "ended"


@pytest.mark.parametrize(
    "command",
    sorted(
        {found for name in GUIDES for found in re.findall(r"(?<!@)\bmoorings ([a-z]+)\b", (ROOT / "docs" / name).read_text())}
    ),
)
def test_every_command_in_the_guides_exists(command: str, tmp_path: Any) -> None:
    assert run(tmp_path, command, "--help").returncode == 0
