"""What the child processes of `test_processes` do; they talk in lines of JSON.

What lives here: one coroutine a role. What does not: starting, killing and judging them.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from durable_core.clock import DatabaseClock
from durable_core.model import ClaimRequest, Incarnation
from durable_core.store import Store
from durable_core.testing.builders import message, to_address
from tests.durable_core.churning import Churn
from tests.durable_core.conformance.sqlite import file_store, own_incarnation

LONG_LEASE = 3_600_000
"""An hour: nothing in these tests may wait for a lease to end."""


def say(**fields: str | int | bool) -> None:
    """Tell the parent."""
    print(json.dumps(fields), flush=True)


async def told() -> str:
    """Wait for a line of the parent."""
    line = await asyncio.to_thread(sys.stdin.readline)
    return line.strip()


async def racer(store: Store, first: int, count: int) -> None:
    """Send `count` messages to one new address at once, when told."""
    say(ready=True)
    await told()
    calls = [store.admit(message(to_address("race"), text=str(n), key=str(n))) for n in range(first, first + count)]
    for n, receipt in enumerate(await asyncio.gather(*calls)):
        fields = {"submission_id": receipt.submission_id, "run_id": receipt.run_id}
        say(key=first + n, seq=receipt.seq, created=receipt.created, **fields)


async def writer(store: Store) -> None:
    """Send messages without end, naming each that was accepted."""
    n = 0
    while True:
        batch = [message(to_address(f"stream:{m % 3}"), text=str(m)) for m in range(n, n + 5)]
        for receipt in await asyncio.gather(*(store.admit(m) for m in batch)):
            say(submission_id=receipt.submission_id, run_id=receipt.run_id, seq=receipt.seq)
        n += 5


async def holder(store: Store) -> None:
    """Claim all that is due, for an hour, and do nothing."""
    owner = own_incarnation(store)
    await store.enrol(Incarnation(owner=owner, deployment="d1"))
    taken = await store.claim(ClaimRequest(owner=owner, lease_ms=LONG_LEASE, limit=100))
    say(owner=owner, taken=len(taken))
    await told()


async def watcher(store: Store) -> None:
    """Say which runs it heard of."""
    heard: asyncio.Queue[str] = asyncio.Queue()

    def listen(run_ids: Sequence[str] | None) -> None:
        for run_id in run_ids or ("any",):
            heard.put_nowait(run_id)

    stop = store.watch(listen)
    say(ready=True)
    say(heard=await heard.get())
    stop()


async def churner(store: Store, seed: int) -> None:
    """Do all that can be done to a store without end, naming each input that was accepted."""
    await Churn(store, seed, lambda receipt: say(submission_id=receipt.submission_id)).run()


async def main(role: str, path: str, numbers: list[int]) -> None:
    """Play a role on the store at `path`."""
    store = await file_store(DatabaseClock(), Path(path))
    await store.open()
    if role == "racer":
        await racer(store, *numbers)
    elif role == "writer":
        await writer(store)
    elif role == "holder":
        await holder(store)
    elif role == "churner":
        await churner(store, *numbers)
    else:
        await watcher(store)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], [int(n) for n in sys.argv[3:]]))
