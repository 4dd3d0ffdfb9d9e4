"""The guides to own stores and to what is not durable: the kit runs as shown, and what is said to hold a promise is there."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from durable_core import Engine, RunCancelled
from durable_core.store import Store
from durable_core.testing import StoreContract
from tests import house
from tests.bot.command import ROOT, environment
from tests.e2e.test_docs import loaded

TEXT = (ROOT / "docs" / "stores.md").read_text()
CODE = "\n".join(path.read_text() for path in sorted((ROOT / "durable_core" / "testing").glob("*.py")))


def test_the_kit_runs_as_it_is_shown_and_is_short(tmp_path: Path) -> None:
    [block] = house.python_blocks(TEXT)
    kit = block.partition("class TestMyStore")[2].splitlines()
    assert len(kit) <= 15
    (tmp_path / "test_my_store.py").write_text(block)
    some = "s1_ or s28 or s22_reads or s7_a_zombie_changes_nothing"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "test_my_store.py", "-k", some],
        cwd=tmp_path,
        env=environment(PYTHONWARNINGS=""),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert re.search(r"^9 passed, \d\d\d deselected", done.stdout, re.MULTILINE), done.stdout


def test_what_is_said_to_hold_a_promise_is_there() -> None:
    named = set(re.findall(r"`(test_s\d+_\w+)`", TEXT))
    assert len(named) > 20
    assert not {name for name in named if not hasattr(StoreContract, name)}
    assert not {path for path in re.findall(r"`((?:tests|durable_core)/[\w/.]+)`", TEXT) if not (ROOT / path).exists()}


def test_all_promises_are_told_of() -> None:
    told: set[int] = set()
    for first, last in re.findall(r"^\| S(\d+)(?:–S(\d+))? \|", TEXT, re.MULTILINE):
        told |= set(range(int(first), int(last or first) + 1))
    assert told == house.promises(ROOT / "durable_core" / "store.py", "S")
    calls = [name for name, value in vars(Store).items() if not name.startswith("_") and callable(value)]
    assert 50 <= len(calls) <= 60, "the text says: between fifty and sixty calls"


async def test_a_body_that_is_dropped_runs_its_finally_and_its_prints_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'app.db'}"
    with loaded("not-durable.md") as names:
        careful = names["careful"]
        async with Engine(url, workflows=[careful]) as engine:
            run = await engine.start(careful)
            while (await run.status()).status != "waiting":
                await asyncio.sleep(0.01)
        async with Engine(url, workflows=[careful]) as engine:
            await engine.signal(run_id=run.run_id, name="wake", key="up")
            while "again" not in names["seen"]:
                await asyncio.sleep(0.01)
            await engine.cancel(run.run_id)
            with pytest.raises(RunCancelled):
                await engine.run(run.run_id).result(timeout=30)
        assert names["seen"] == ["first", "finally", "again", "finally"]
