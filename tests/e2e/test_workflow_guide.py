"""The guide to workflows: each of its workflows runs and does what the text says; what it shows was really said."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer
from sqlalchemy import make_url

from durable_core import Engine, KeyRing, ManualClock, RunCancelled, RunFailed, RunHandle, WorkerOptions, Workflow
from durable_core.testing.builders import START_MS
from tests import house
from tests.bot.command import ROOT, environment
from tests.e2e.test_docs import loaded

TEXT = (ROOT / "docs" / "workflows.md").read_text()
SHOWN = house.readme_commands(TEXT)
KEYS = "test:" + "A" * 43 + "="
REFUSED = ["fetches", "threads", "waits_for_nobody", "blocks", "calls", "forgets", "returns_anything", "takes_no_for_a_yes"]
PATIENCE = 60.0
"""Real seconds after which a test that hangs is told so."""


@pytest.fixture
def names() -> Iterator[dict[str, Any]]:
    with loaded("workflows.md") as found:
        yield found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_MS)


@pytest_asyncio.fixture
async def engine(names: dict[str, Any], clock: ManualClock) -> AsyncIterator[Engine]:
    workflows = [one for one in names.values() if isinstance(one, Workflow)]
    options = WorkerOptions(poll=0.02, settle=0.001)
    async with Engine(
        "sqlite:///:memory:", workflows=workflows, clock=clock, options=options, public_url="https://shop.example"
    ) as found:
        yield found


async def until_waiting(run: RunHandle, *, steps: int = 0) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await run.status()).status != "waiting" or len(await run.engine.store.steps(run.run_id)) < steps:
            await asyncio.sleep(0.005)


async def result(run: RunHandle) -> Any:
    return await run.result(timeout=PATIENCE)


# ── the first one, and the README's, as programs ──


def program(folder: Path, block: str, url: str) -> str:
    (folder / "order.py").write_text(block)
    env = environment() | {"MOORINGS_DATABASE_URL": url, "MOORINGS_ENCRYPTION_KEYS": KEYS}
    done = subprocess.run(
        [sys.executable, "order.py"], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'order.db'}"
    url = make_url(request.getfixturevalue("migrated_url"))
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


@pytest.mark.parametrize("page", ["docs/workflows.md", "README.md"])
def test_the_first_workflow_runs_as_it_is_and_once(database: str, page: str, tmp_path: Path) -> None:
    [block] = [one for one in house.python_blocks((ROOT / page).read_text()) if one.startswith("# order.py")]
    assert program(tmp_path, block, database) == SHOWN["order"]
    assert program(tmp_path, block, database) == SHOWN["order"].splitlines()[-1]


@pytest.mark.parametrize("page", ["docs/workflows.md", "README.md"])
def test_the_first_workflow_goes_on_after_a_kill(database: str, page: str, tmp_path: Path) -> None:
    [block] = [one for one in house.python_blocks((ROOT / page).read_text()) if one.startswith("# order.py")]
    (tmp_path / "order.py").write_text(block)
    env = environment() | {"MOORINGS_DATABASE_URL": database, "MOORINGS_ENCRYPTION_KEYS": KEYS}
    with subprocess.Popen([sys.executable, "-u", "order.py"], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "reserving o-17\n"
        waits_in_the_log(database)
        first.kill()
    assert program(tmp_path, block, database).splitlines() == SHOWN["order"].splitlines()[1:]


def waits_in_the_log(database: str) -> None:
    """Wait until the first step is recorded."""

    async def look() -> None:
        async with asyncio.timeout(PATIENCE), Engine(database, workflows=[], keys=KeyRing.parse(KEYS), work=False) as engine:
            while await engine.store.rows("SELECT count(*) FROM moor_step", {}) == [(0,)]:
                await asyncio.sleep(0.01)

    asyncio.run(look())


# ── all others, in one engine ──


async def test_steps_are_tried_and_fail(engine: Engine, names: dict[str, Any]) -> None:
    assert await result(await engine.start(names["pay"], "visa", 100)) == "120 from visa"
    told = await result(await engine.start(names["pay"], "stolen", 100))
    assert told == "charge failed (blocked) in attempt 1: the card is blocked"


async def test_a_reminder_waits_two_weeks_and_an_hour(engine: Engine, names: dict[str, Any], clock: ManualClock) -> None:
    paid, unpaid = await engine.start(names["reminder"], "i-1"), await engine.start(names["reminder"], "i-2")
    for run in (paid, unpaid):
        await until_waiting(run)
    clock.advance(timedelta(days=14))
    for run in (paid, unpaid):
        await until_waiting(run, steps=2)
    await engine.signal("paid:i-1", "alice")
    assert await result(paid) == "paid by alice"
    clock.advance(timedelta(hours=1))
    assert await result(unpaid) == "not paid within two weeks and an hour"


async def test_a_question_is_answered_by_whom_it_names(engine: Engine, names: dict[str, Any], clock: ManualClock) -> None:
    run = await engine.start(names["approve"], 20)
    await until_waiting(run)
    assert await names["click"](engine, run.run_id, "eve") == ["refused"]
    assert await names["click"](engine, run.run_id, "farah") == ["settled"]
    assert await result(run) == "yes from farah"
    late = await engine.start(names["approve"], 20)
    await until_waiting(late)
    clock.advance(timedelta(days=2))
    assert await result(late) == "nobody said anything"


async def test_signals_come_in_order_and_a_key_counts_once(engine: Engine, names: dict[str, Any]) -> None:
    run = await engine.start(names["parcel"], "7")
    await until_waiting(run)
    for place in ("depot", "depot", "van", "home"):
        await names["scan"](engine, "7", place)
    assert await result(run) == "depot > van > home"
    shown = [event.data["value"]["at"] async for event in run.events() if event.type == "progress"]
    assert shown == ["depot", "van", "home"]


async def test_a_hook_belongs_to_one_run(engine: Engine, names: dict[str, Any]) -> None:
    await until_waiting(await engine.start(names["parcel"], "8"))
    with pytest.raises(RunFailed) as failed:
        await result(await engine.start(names["parcel"], "8"))
    assert failed.value.code == "hook_taken"


async def test_a_webhook_is_posted_to(engine: Engine, names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    run = await engine.start(names["sign"], "lease")
    await until_waiting(run, steps=2)
    address = re.search(r"sign at https://shop\.example(/hooks/whk_\w+)", capsys.readouterr().out)
    assert address is not None
    async with TestClient(TestServer(names["web_app"](engine))) as client:
        assert (await client.post(address[1], json={"name": "Omar"})).status == 202
    assert await result(run) == "lease signed by Omar"


async def test_several_things_at_once(engine: Engine, names: dict[str, Any]) -> None:
    [_, *prices] = await result(await engine.start(names["cheapest"], ["a", "bbb", "cc"]))
    assert prices == [1, 2, 3]


async def test_children_are_runs(engine: Engine, names: dict[str, Any]) -> None:
    assert await result(await engine.start(names["shipment"], 3)) == 60
    boxes = [engine.run(view.run_id) for view in await engine.runs(workflow="box")]
    assert sorted([await result(box) for box in boxes]) == [0, 10, 20, 30]


async def test_a_cancel_lets_the_body_clean_up(engine: Engine, names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    run = await engine.start(names["promotion"])
    await until_waiting(run)
    assert await run.cancel("a reason", by="omar")
    with pytest.raises(RunCancelled):
        await result(run)
    assert capsys.readouterr().out.split("\n") == ["prices are low", "prices are back", ""]
    assert (await run.status()).status == "cancelled"


async def test_the_office(engine: Engine, names: dict[str, Any], clock: ManualClock, capsys: pytest.CaptureFixture[str]) -> None:
    office = asyncio.create_task(names["office"](engine))
    async with asyncio.timeout(PATIENCE):
        while not office.done():
            clock.advance(timedelta(seconds=1))
            await asyncio.sleep(0.01)
    assert office.result() == ["run.started", "step.completed", "timer.fired", "step.completed", "run.completed"]
    out = capsys.readouterr().out
    assert "key 'o-18' of start:fulfil was already used with another payload" in out
    assert "o-18 is on its way, for 42" in out
    assert "completed ['run_" in out


async def test_what_a_body_may_use(engine: Engine, names: dict[str, Any]) -> None:
    first, second = [await result(await engine.start(names["lottery"], key="one")) for _ in range(2)]
    assert first == second
    assert len(first) == 3


async def refusal(engine: Engine, body: Workflow) -> str:
    run = await engine.start(body)
    if body.name == "takes_no_for_a_yes":
        await until_waiting(run)
        [prompt] = await run.prompts()
        await engine.answer(prompt.prompt_id, text="no")
    with pytest.raises(RunFailed) as failed:
        await result(run)
    message = re.sub(r"^workflows\.md, block \d+:\d+ \(\w+\): ", "", failed.value.message)
    return re.sub(r"for \d\.\d s", "for 2.1 s", message)


async def test_the_messages_of_refusals_are_the_real_ones(engine: Engine, names: dict[str, Any]) -> None:
    said = [f"{name}: {await refusal(engine, names[name])}" for name in REFUSED]
    assert "\n".join(said) == SHOWN["refusals"]


async def test_a_new_run_takes_the_new_way(
    engine: Engine, names: dict[str, Any], clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    run = await engine.start(names["welcome"], "ann")
    await until_waiting(run)
    clock.advance(timedelta(minutes=1))
    assert await result(run) == "hello ann"
    assert capsys.readouterr().out == "a gift for ann\n"


async def test_code_that_does_not_fit_leaves_the_run_alone(names: dict[str, Any], clock: ManualClock, tmp_path: Path) -> None:
    async def changed(ctx: Any, order: str) -> str:
        return str(await ctx.step(names["ship"], order, 1))

    url, options = f"sqlite:///{tmp_path / 'order.db'}", WorkerOptions(poll=0.02)
    async with Engine(url, workflows=[names["fulfil"]], clock=clock, options=options) as engine:
        run = await engine.start(names["fulfil"], "o-17")
        await until_waiting(run)
    clock.advance(timedelta(seconds=2))
    async with Engine(url, workflows=[Workflow("fulfil", changed)], clock=clock, options=options) as engine:
        async with asyncio.timeout(PATIENCE):
            while (view := await engine.run(run.run_id).status()).status != "stranded":
                await asyncio.sleep(0.01)
        assert view.reason == SHOWN["stranded"]
    async with Engine(url, workflows=[names["fulfil"]], clock=clock, options=options) as engine:
        assert await result(engine.run(run.run_id)) == "o-17 is on its way, for 42"


async def test_what_is_due_is_done_by_a_call(
    names: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    nightly, fulfil = names["nightly"], names["fulfil"]
    async with nightly:
        await nightly.start(fulfil, "o-1")
    await names["once"]()
    assert capsys.readouterr().out == "reserving o-1\n1\n"
    async with nightly, TestClient(TestServer(names["routes"])) as client:
        await nightly.start(fulfil, "o-2")
        done = await client.post("/run-due", headers={"Authorization": "Bearer a-long-random-secret"})
        assert (done.status, (await done.json())["advanced"]) in {(200, 1), (200, 2)}
        assert (await client.post("/run-due")).status == 401


def test_a_worker_is_a_command(tmp_path: Path) -> None:
    [block] = [one for one in house.python_blocks(TEXT) if one.startswith("# order.py")]
    (tmp_path / "order.py").write_text(block)
    done = subprocess.run(
        [sys.executable, "-m", "bot", "work", "order:engine", "--until-idle"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "Advanced 0 runs.")


@pytest.mark.postgres
async def test_a_namespace_is_made_with_its_schema(names: dict[str, Any], postgres_url: str, clock: ManualClock) -> None:
    url = make_url(postgres_url).set(drivername="postgresql").render_as_string(hide_password=False)
    options = names["StoreOptions"](namespace="shop", pool=2)
    keys, box = KeyRing.parse(KEYS), names["box"]
    async with Engine(url, workflows=[box], keys=keys, clock=clock, store_options=options, migrate=True) as engine:
        assert await result(await engine.start(box, 4)) == 40
        assert await engine.store.rows("SELECT count(*) FROM moor_run", {}) == [(1,)]
        schemas = "SELECT DISTINCT schemaname FROM pg_tables WHERE tablename LIKE 'moor%'"
        assert await engine.store.rows(schemas, {}) == [("shop",)]
