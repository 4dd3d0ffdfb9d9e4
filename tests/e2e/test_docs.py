"""The guides: their Python runs, their adapter keeps the contract, their walk ends as they say."""

from __future__ import annotations

import inspect
import json
import re
import sys
import types
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bot import Bot, Principal, Tool, ToolContext
from channels.events import Standing
from channels.testing import ChannelContract
from durable_core import Fatal
from durable_core.clock import ManualClock
from durable_core.context import StepContext, entering_step
from durable_core.crypto import KeyRing, new_key_entry
from durable_core.keys import rewrap_all
from durable_core.registry import step_of
from durable_core.schema import upgrade
from durable_core.stores.open import open_store
from durable_core.testing.builders import START_MS, message
from tests import house
from tests.bot.command import ROOT, run
from tests.durable_core.engine.test_claiming import claimer
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
def test_the_code_of_a_guide_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in re.findall(r'env\("(\w+)"\)', (ROOT / "docs" / name).read_text()):
        monkeypatch.setenv(variable, "a-value")
    with loaded(name) as names:
        if "bot" in names:
            assert isinstance(names["bot"], Bot)
            names["bot"].check()


def test_what_follows_an_interruption_is_as_the_table_says() -> None:
    with loaded("durability.md") as names:
        found = {value.name: value.on_interrupt.value for value in names.values() if isinstance(value, Tool)}
    assert found == {
        "find_order": "rerun",
        "refund": "rerun",
        "create_invoice": "rerun",
        "send_fax": "ask",
        "ring_bell": "report",
    }


class Books:
    """Books that lose an answer when told to."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.cuts_off = False

    async def create(self, order_id: str) -> int:
        if self.cuts_off:
            raise ConnectionResetError
        self.written.append(order_id)
        return len(self.written)

    async def find(self, order_id: str) -> int | None:
        return self.written.index(order_id) + 1 if order_id in self.written else None


async def test_the_tool_that_claims_says_what_it_knows() -> None:
    store, books = open_store("sqlite:///:memory:", keys=KeyRing.parse(new_key_entry()), clock=ManualClock(START_MS)), Books()
    await store.open()
    alice = Principal("console:alice", "Alice", Standing.MEMBER)
    ctx = ToolContext("ses_1", alice, call_id="o", deps=SimpleNamespace(books=books), claimer=await claimer(store))
    with loaded("durability.md") as names:

        async def says(order_id: str) -> str:
            return str((await names["create_invoice"].run(ctx, {"order_id": order_id})).content)

        assert [await says("a"), await says("a")] == ["invoice 1", "invoice 1, written before"]
        books.cuts_off = True
        assert "ConnectionResetError" in await says("b")
        assert "nobody knows whether b was invoiced" in await says("b")
        books.written.append("b")
        assert [await says("b"), await says("b")] == ["invoice 2", "invoice 2, written before"]
    await store.close()


async def test_the_step_that_claims_runs_once_in_all_runs() -> None:
    store = open_store("sqlite:///:memory:", keys=KeyRing.parse(new_key_entry()), clock=ManualClock(START_MS))
    await store.open()
    one = await claimer(store)
    with loaded("not-durable.md") as names:
        send = step_of(names["send_fax"])[0]
        with entering_step(StepContext(run_id=one.run_id, operation_id="o", attempt=1, idempotency_key="k", claimer=one)):
            assert [await send("17", "555"), await send("17", "556")] == ["sent to 555"] * 2
            await one.claim("fax:18")
            with pytest.raises(Fatal, match="attempt 1 of o"):
                await send("18", "555")
    await store.close()


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


class FakeKms:
    """Decrypts what it encrypted, in the same context."""

    SECRET = bytes(range(100, 132))

    def encrypt(self, key: bytes) -> str:
        return b64encode(bytes(a ^ b for a, b in zip(key, self.SECRET, strict=True))).decode()

    async def decrypt(self, *, CiphertextBlob: bytes, EncryptionContext: dict[str, str]) -> dict[str, bytes]:  # noqa: N803
        assert EncryptionContext == {"app": "moorings"}
        return {"Plaintext": bytes(a ^ b for a, b in zip(CiphertextBlob, self.SECRET, strict=True))}


async def test_the_keys_of_the_guide_come_from_a_kms(tmp_path: Path) -> None:
    kms, clock = FakeKms(), ManualClock(1_800_000_000_000)
    old, new = b"o" * 32, b"n" * 32
    url = f"sqlite:///{tmp_path / 'm.db'}"
    upgrade(url)
    with loaded("keys-and-retention.md") as names:
        assert names["bot"].retention.days == 30
        for encrypted, wrapped in ({"k1": old}, 0), ({"k2": new, "k1": old}, 1), ({"k2": new}, 0):
            bot = names["app"](kms, {key_id: kms.encrypt(key) for key_id, key in encrypted.items()})
            bot.check()
            store = open_store(url, keys=bot.keys, clock=clock)
            await store.open()
            if "k2" not in encrypted:
                await store.admit(message())
            assert (await rewrap_all(store)).changed == wrapped
            assert len(await store.rows("SELECT 1 FROM moor_run", {})) == 1
            await store.close()


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
