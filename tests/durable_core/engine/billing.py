"""A workflow whose step claims a key, has an effect and dies before it says so; run as a program, it does.

What lives here: the workflow, and the process that is killed. What does not: what the next process finds (test_claiming.py).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from durable_core import DatabaseClock, Engine, KeyRing, WorkflowContext, open_store, step, step_context, workflow
from tests.durable_core.conformance.sqlite import KEYS

KEY = "invoice-17"


@step
def bill(ledger: str) -> dict[str, Any]:
    """Bill once; where nobody knows whether it was billed, look into the ledger."""
    ctx = step_context()
    claim = ctx.claim(KEY).wait()
    if claim.state == "claimed":
        Path(ledger).write_text("billed")
        os.kill(os.getpid(), signal.SIGKILL)
    found = {"state": claim.state.value, "is_own": claim.is_own, "began": claim.attempt, "attempt": ctx.attempt}
    known = claim.done(Path(ledger).read_text()).wait()
    return {**found, "after": known.state.value, "value": known.value}


@workflow
async def billing(ctx: WorkflowContext, ledger: str) -> dict[str, Any]:
    """Bill in one step."""
    return await ctx.step(bill, ledger)


async def main(url: str, ledger: str) -> None:
    """Start the run, and work on it."""
    store = open_store(url, keys=KeyRing.parse(KEYS), clock=DatabaseClock())
    await store.open()
    async with Engine(store, workflows=[billing]) as engine:
        await (await engine.start(billing, ledger, key="one")).result()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
