"""The store without an engine above it: what a workflow of ten steps costs in its start and its commits alone.

What lives here: the calls an engine has to make, and nothing between them. What does not: bodies, replay, retries.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from itertools import count
from typing import Any, cast

from durable_core.clock import DatabaseClock
from durable_core.codec import encode
from durable_core.crypto import KeyRing
from durable_core.ids import new_id
from durable_core.model import (
    Abilities,
    Admission,
    ClaimRequest,
    CommandKind,
    Incarnation,
    NewRun,
    Phase,
    RunKind,
    StepCommit,
    StepDraft,
    ToNew,
)
from durable_core.store import Store
from durable_core.stores.open import open_store
from tests.bench.lines import answer, load
from tests.bench.payloads import payloads

KEYS = "bench:" + "A" * 43 + "="
TEXTS = payloads()
STEPS = 10
ABILITIES = Abilities(sessions=False, workflows=("bare",))
END = StepDraft(kind="end", name="", input=encode({}), output=encode({"ok": True, "value": None}))


async def opened(url: str) -> Store:
    """Return the store of a URL, connected; its schema is made unless it is said to be there."""
    if "BENCH_MIGRATED" not in os.environ:
        from durable_core.schema import upgrade  # costs a start-up that is measured a second

        await asyncio.to_thread(upgrade, url)
    store = open_store(url, keys=KeyRing.parse(KEYS), clock=DatabaseClock())
    await store.open()
    return store


def start() -> Admission:
    """Return the first input of a new workflow run."""
    submission_id = new_id("sub")
    header = encode({"args": [], "kwargs": {}})
    new = NewRun(
        kind=RunKind.WORKFLOW,
        run_id=new_id("run"),
        name="bare",
        creator="bench",
        header=header,
        deployment="bench",
        lifetime_ms=None,
    )
    return Admission(
        source="bench",
        key=submission_id,
        digest=b"0" * 32,
        on_conflict="refuse",
        submission_id=submission_id,
        target=ToNew(new=new),
        kind=CommandKind.MESSAGE,
        principal="bench",
    )


async def ten(store: Store, first: int) -> int:
    """Begin a run and commit ten steps of it, its end with the last one."""
    request = ClaimRequest(owner=store.incarnation, lease_ms=60_000, limit=1, abilities=ABILITIES)
    _, claim = await store.begin(start(), request)
    if claim is None:
        raise RuntimeError("a new run was not taken")
    for n in range(STEPS):
        output = encode({"ok": True, "value": cast("Any", TEXTS[(first + n) % len(TEXTS)])})
        step = StepDraft(kind="step", name=f"step:think#{n}", input=encode({}), output=output)
        ends = n == STEPS - 1
        commit = StepCommit(
            run_id=claim.run_id,
            epoch=claim.epoch,
            step_n=claim.step_no + n,
            before=step if ends else None,
            step=END if ends else step,
            seen=claim.signals.inbox_seq,
            consumed=() if n else (1,),
            phase=Phase.IDLE if ends else Phase.RUNNING,
            end="completed" if ends else None,
        )
        await store.commit(commit)
    return STEPS


async def main(url: str) -> None:
    """Answer."""
    store = await opened(url)
    await store.enrol(Incarnation(owner=store.incarnation, deployment="bench", abilities=ABILITIES))
    numbers = count()

    async def steps(at_once: int, seconds: float) -> Mapping[str, Any]:
        return await load(at_once, seconds, lambda: ten(store, next(numbers)))

    async def versions() -> Mapping[str, Any]:
        return {}

    await answer({"steps": steps, "versions": versions})
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
