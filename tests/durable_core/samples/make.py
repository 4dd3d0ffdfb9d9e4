"""Make the samples of this version's format: real bodies, as a few conversations leave them behind.

What lives here: the conversations and the gathering. What does not: reading samples (test_samples.py). A set that is there stays:
what an old version wrote can't be written by a new one.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from base64 import b64encode
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

from bot.ingress import Ingress
from channels.http import WebhookRequest
from durable_core import codec, versions
from durable_core.crypto import KeyRing
from durable_core.failpoints import arm
from durable_core.model import Interaction, Lane
from durable_core.schema import upgrade
from tests.bot.session.actors import Killed, calls, die, says
from tests.bot.session.kit import FARAH, Thread, open_thread
from tests.durable_core.conformance.sqlite import KEYS

HERE = Path(__file__).parent
KINDS = ("header", "command", "step.input", "step", "record", "prompt", "note", "outbox", "event", "answer")


EACH = 3
"""Samples of one sort are enough."""


class Gathered:
    """Bodies by kind, each with what more there is to say of it."""

    def __init__(self) -> None:
        self.bodies: defaultdict[str, list[dict[str, str]]] = defaultdict(list)

    def add(self, kind: str, body: bytes, of: str) -> None:
        entry = {"of": of, "body": b64encode(body).decode()}
        if sum(other["of"] == of for other in self.bodies[kind]) < EACH and entry not in self.bodies[kind]:
            self.bodies[kind].append(entry)


class Listening:
    """Stands before the one who sends or decides, and keeps what comes by."""

    def __init__(self, inner: Any, gathered: Gathered) -> None:
        self._inner, self._gathered = inner, gathered

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def send(self, lane: Lane) -> None:
        for item in lane.items:
            self._gathered.add("outbox", item.body, "edit" if item.edit_of else "post")
        await self._inner.send(lane)

    async def evaluate(self, interaction: Interaction) -> None:
        self._gathered.add("answer", interaction.answer.body, interaction.answer.option_id)
        await self._inner.evaluate(interaction)


async def tell(thread: Thread, place: str, text: str) -> None:
    """Write in a thread, over the channel, as a platform would."""
    taker = Ingress(
        store=thread.store,
        channels={"fake": thread.channel},
        agent_of={"fake": "support"},
        answers=thread.answers,
        deployment="d1",
        lifetime_ms=2_592_000_000,
    )
    event = {"who": "alice", "text": text, "key": f"{place}:{text}", "address": f"fake:v1:{place}"}
    taken = await taker.receive("fake", WebhookRequest("POST", "/", headers={}, body=codec.encode(event)))
    thread.run_id = taken.receipts[0].run_id


async def conversations(path: str) -> tuple[Thread, Gathered, list[str]]:
    """Have what there can be: text, tools, a refused and an open request, a cancelled and a failed turn, a killed tool."""
    thread = await open_thread(path, keys=KeyRing.parse(KEYS))
    gathered = Gathered()
    thread.egress = Listening(thread.egress, gathered)  # type: ignore[assignment]
    thread.answers = Listening(thread.answers, gathered)  # type: ignore[assignment]
    runs = []

    await tell(thread, "idle", "hello")
    thread.model.script = [calls(("look", {"at": "order 7"}), text="Let me see."), says("It is on its way." * 60)]
    await thread.work()
    thread.model.script = [calls(("pay", {"amount": 5}))]
    await tell(thread, "idle", "pay 5")
    await thread.work()
    await thread.click("deny", FARAH, note="not this month")
    await thread.work()
    thread.model.script = [calls(("refund", {"amount": 3}))]
    await tell(thread, "idle", "refund 3")
    await thread.work()
    await thread.cancel()
    await thread.work()
    thread.model.script = [RuntimeError("no such model")] * 4
    await tell(thread, "idle", "and now?")
    for _ in range(5):
        await thread.work()
        thread.later_s(3_600)
    runs.append(thread.run_id)

    thread.model.script = [calls(("refund", {"amount": 20}), text="I'll ask.")]
    await tell(thread, "parked", "refund 20")
    await thread.work()
    runs.append(thread.run_id)

    thread.model.script = [calls(("look", {"at": "a"}), ("put_once", {}))]
    await tell(thread, "killed", "put it down")
    with arm("tool.after_effect", die, on=2), suppress(Killed):
        await thread.work()
    runs.append(thread.run_id)
    return thread, gathered, runs


async def gather(thread: Thread, gathered: Gathered, runs: list[str]) -> None:
    """Read every stored body, as it is behind its seal."""
    store = thread.store
    for run_id in runs:
        run = await store.run(run_id)
        gathered.add("header", run.header, run.kind.value)
        for seq, kind in await store.rows("SELECT seq, kind FROM moor_command WHERE run_id = :id", {"id": run_id}):
            for body in (await store.content(run_id, [f"command:{seq!s}"])).values():
                gathered.add("command", body, str(kind))
        for step in await store.steps(run_id):
            gathered.add("step.input", step.input, step.kind)
            gathered.add("step", step.output, step.kind)
        for record in await store.records(run_id, run.step_no):
            gathered.add("record", record.body, record.kind.value)
        for (prompt_id,) in await store.rows("SELECT prompt_id FROM moor_prompt WHERE run_id = :id", {"id": run_id}):
            prompt = await store.prompt(str(prompt_id))
            gathered.add("prompt", prompt.body, prompt.kind)
            if prompt.note is not None:
                gathered.add("note", prompt.note, prompt.kind)
        for event in await store.events(run_id, limit=10_000, hidden=True):
            gathered.add("event", event.body, event.type)


async def rows(thread: Thread) -> dict[str, list[dict[str, Any]]]:
    """Read the whole database; bytes are written as base64 behind a mark."""
    names = await thread.store.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'moor_%'", {})
    found = {}
    for (table,) in sorted(names):
        columns = [str(name) for (name,) in await thread.store.rows(f"SELECT name FROM pragma_table_info('{table!s}')", {})]
        values = await thread.store.rows(f"SELECT {', '.join(columns)} FROM {table!s}", {})
        found[str(table)] = [
            {name: {"base64": b64encode(one).decode()} if isinstance(one, bytes) else one for name, one in cells}
            for cells in (zip(columns, row, strict=True) for row in values)
        ]
    return found


async def main(*, database: bool) -> None:
    folder = HERE / f"v{versions.CURRENT_SPEC}"
    with tempfile.TemporaryDirectory() as place:
        path = f"{place}/moorings.db"
        upgrade(f"sqlite:///{path}")
        thread, gathered, runs = await conversations(path)
        if database:
            text = json.dumps(await rows(thread), indent=0)
            (HERE / "0001" / "rows.json").write_text(f"{text}\n")
        await gather(thread, gathered, runs)
        await thread.store.close()
    missing = [kind for kind in KINDS if not gathered.bodies[kind]]
    if missing:
        raise SystemExit(f"the conversations leave no {', '.join(missing)}")
    target = folder / "bodies.json"
    if target.exists():
        raise SystemExit(f"{target} is there; samples are never written again")
    folder.mkdir(exist_ok=True)
    target.write_text(f"{json.dumps(gathered.bodies, indent=0, sort_keys=True)}\n")


if __name__ == "__main__":
    asyncio.run(main(database="--database" in sys.argv))
