"""Make the samples of this version's format: real bodies, as a few conversations leave them behind.

What lives here: the gathering. What does not: the conversations (conversations.py), reading samples (test_samples.py). A set that
is there stays: what an old version wrote can't be written by a new one.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from durable_core import codec, versions
from durable_core.model import Run, RunKind
from durable_core.schema import upgrade
from tests.bot.session.kit import Thread
from tests.durable_core.samples.conversations import conversations

HERE = Path(__file__).parent
KINDS = ("header", "command", "step.input", "step", "record", "prompt", "note", "outbox", "event", "answer")
FLOW = "workflow/"
FLOW_KINDS = tuple(f"{FLOW}{kind}" for kind in ("header", "command", "step.input", "step", "note", "event"))
"""Kinds of values that workflow runs write; a prompt's is read by both layers, and is among the others."""
_WORDS = frozenset({"kind", "stage", "purpose", "outcome", "status", "quorum", "display", "on_expiry"})
"""Fields whose value says what there is beside them."""
_ID = re.compile(r"[a-z]{3}_[0-9a-z]{20,}")


def shape(value: Any, at: str = "") -> Iterator[str]:
    """Say what there is in a value: every field that holds something, by its path."""
    if isinstance(value, dict):
        for name, one in value.items():
            field = "<id>" if _ID.match(name) else name
            yield from shape(one, f"{at}/{field}={one}" if name in _WORDS and isinstance(one, str | int) else f"{at}/{field}")
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from shape(one, f"{at}[]")
    elif value:
        yield at


class Gathered:
    """Bodies by kind, each with what more there is to say of it; one that shows nothing new is left out."""

    def __init__(self) -> None:
        self.bodies: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
        self._seen: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def add(self, kind: str, of: str, body: bytes) -> None:
        found, seen = {"", *shape(codec.decode(body))}, self._seen[kind, of]
        if not found <= seen:
            seen |= found
            self.bodies[kind].append({"of": of, "body": b64encode(body).decode()})


async def gather(thread: Thread, gathered: Gathered) -> None:
    """Read every stored body, as it is behind its seal."""
    for (run_id,) in await thread.store.rows("SELECT run_id FROM moor_run ORDER BY created_at, run_id", {}):
        await _gather_run(thread, gathered, await thread.store.run(str(run_id)))


async def _gather_run(thread: Thread, gathered: Gathered, run: Run) -> None:
    store = thread.store
    here: dict[str, str | int | bytes | None] = {"id": run.run_id}
    own = FLOW if run.kind is RunKind.WORKFLOW else ""
    gathered.add(f"{own}header", run.kind.value, run.header)
    for seq, kind in await store.rows("SELECT seq, kind FROM moor_command WHERE run_id = :id ORDER BY seq", here):
        for body in (await store.content(run.run_id, [f"command:{seq!s}"])).values():
            gathered.add(f"{own}command", str(kind), body)
    for step in await store.steps(run.run_id):
        gathered.add(f"{own}step.input", step.kind, step.input)
        gathered.add(f"{own}step", step.kind, step.output)
    for (prompt_id,) in await store.rows("SELECT prompt_id FROM moor_prompt WHERE run_id = :id ORDER BY prompt_id", here):
        prompt = await store.prompt(str(prompt_id))
        gathered.add("prompt", prompt.kind, prompt.body)
        if prompt.note is not None:
            gathered.add(f"{own}note", prompt.kind, prompt.note)
    for event in await store.events(run.run_id, limit=10_000, hidden=True):
        gathered.add(f"{own}event", event.type, event.body)


async def main() -> None:
    target = HERE / f"v{versions.CURRENT_SPEC}" / "bodies.json"
    if target.exists():
        raise SystemExit(f"{target} is there; samples are never written again")
    with tempfile.TemporaryDirectory() as place:
        path = f"{place}/moorings.db"
        upgrade(f"sqlite:///{path}")
        gathered = Gathered()
        thread = await conversations(path, gathered.add)
        await gather(thread, gathered)
        await thread.store.close()
    missing = [kind for kind in (*KINDS, *FLOW_KINDS) if not gathered.bodies[kind]]
    if missing:
        raise SystemExit(f"the conversations leave no {', '.join(missing)}")
    target.parent.mkdir(exist_ok=True)
    target.write_text(f"{json.dumps(gathered.bodies, indent=0, sort_keys=True)}\n")


if __name__ == "__main__":
    asyncio.run(main())
