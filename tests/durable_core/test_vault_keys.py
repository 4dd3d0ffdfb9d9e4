"""Keys of the vault: replaced while others write, missing, wrong; on both stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from durable_core.clock import ManualClock
from durable_core.crypto import KEY_BYTES, KeyRing
from durable_core.errors import CannotOpen, KeyMissing
from durable_core.keys import keys_in_use, rewrap_all
from durable_core.model import VaultEntry
from durable_core.schema import upgrade
from durable_core.store import Store
from durable_core.stores.open import open_store
from durable_core.testing.acts import parked
from durable_core.testing.builders import MINUTE, START_MS
from durable_core.testing.vault import entry, put, read

OLD, NEW = (bytes([n]) * KEY_BYTES for n in (1, 2))
BOTH = KeyRing({"k2": NEW, "k1": OLD})

Opening = Callable[[KeyRing], Awaitable[Store]]


@pytest.fixture(params=["sqlite", "postgres"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opening]:
    """Open the data with a ring; all are closed at the end."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'm.db'}"
        upgrade(url)
    else:
        url = request.getfixturevalue("migrated_url")
    async with AsyncExitStack() as stack:

        async def made(keys: KeyRing) -> Store:
            store = open_store(url, keys=keys, clock=ManualClock(START_MS))
            stack.push_async_callback(store.close)
            await store.open()
            return store

        yield made


async def filled(store: Store, count: int = 5) -> list[VaultEntry]:
    return [await put(store, entry(f"e{number}", str(number).encode())) for number in range(count)]


async def test_a_replaced_key_is_free_and_nothing_is_lost(opened: Opening) -> None:
    store = await opened(KeyRing({"k1": OLD}))
    before = await filled(store)
    await parked(store)
    await store.vault_hold("e0", "mine", ms=MINUTE)
    both = await opened(BOTH)
    assert await keys_in_use(both) == {"k1": 6}
    done = await rewrap_all(both, batch=2)
    assert (done.changed, done.in_use, done.entries, done.entries_in_use) == (1, {"k2": 1}, 5, {"k2": 5})
    again = await rewrap_all(both, batch=2)
    assert (again.changed, again.entries) == (0, 0)
    store = await opened(KeyRing({"k2": NEW}))
    held = replace(before[0], holder="mine", held_until=START_MS + MINUTE)
    assert [await read(store, one.name) for one in before] == [held, *before[1:]]


async def test_what_is_written_meanwhile_is_what_stays(opened: Opening) -> None:
    one, operator = await opened(BOTH), await opened(BOTH)
    await filled(await opened(KeyRing({"k1": OLD})), 12)

    async def written(number: int) -> int:
        found = await one.vault_write((entry(f"e{number}", b"new"),))
        assert found is not None
        return found[0]

    rewrapping = asyncio.create_task(rewrap_all(operator, batch=1))
    versions = await asyncio.gather(*(written(number) for number in range(0, 12, 2)))
    assert (await rewrapping).entries_in_use == {"k2": 12}
    left = await opened(KeyRing({"k2": NEW}))
    found = [await read(left, f"e{number}") for number in range(12)]
    assert [one.value for one in found] == [b"new" if n % 2 == 0 else str(n).encode() for n in range(12)]
    assert [one.version for one in found[::2]] == versions


async def test_an_entry_without_its_key_waits_and_the_others_go_on(opened: Opening, caplog: pytest.LogCaptureFixture) -> None:
    await put(await opened(KeyRing({"k1": OLD})), replace(entry("lost"), due_at=START_MS - 1))
    store = await opened(KeyRing({"k2": NEW}))
    here = await put(store, replace(entry("here"), due_at=START_MS))
    for call in (store.vault("lost"), store.vault_hold("lost", "mine", ms=MINUTE)):
        with pytest.raises(KeyMissing, match="'k1'"):
            await call
    for _ in range(3):
        assert await store.vault_due("credential", limit=1) == [here]
    (told,) = [record.message for record in caplog.records if "lost" in record.message]
    assert told.startswith("lost can't be opened, and is left alone: encryption key 'k1' is not in")
    done = await rewrap_all(store)
    assert (done.entries, done.entries_in_use) == (0, {"k1": 1, "k2": 1})
    assert len(await store.vault_list(limit=10)) == 2
    assert (await read(await opened(BOTH), "lost")).holder is None


async def test_another_key_of_the_same_id_opens_nothing(opened: Opening) -> None:
    await filled(await opened(KeyRing({"k1": OLD})), 1)
    with pytest.raises(CannotOpen, match="moor_vault"):
        await (await opened(KeyRing({"k1": NEW}))).vault("e0")
