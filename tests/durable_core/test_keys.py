"""Keys: from the environment or a provider, rotated while others work, and named when they are missing or wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from durable_core import keys as keys_module
from durable_core import schema
from durable_core.clock import ManualClock
from durable_core.crypto import KEY_BYTES, KeyRing
from durable_core.errors import Conflict, KeyMissing, KeysNotGiven, KeyWrong
from durable_core.keys import Keys, keys_in_use, resolve, rewrap_all
from durable_core.model import Incarnation
from durable_core.store import Store
from durable_core.stores.open import open_store
from durable_core.testing.acts import claims, parked
from durable_core.testing.builders import START_MS, body, message, to_address

OLD, NEW, OTHER = (bytes([n]) * KEY_BYTES for n in (1, 2, 3))


class Vault:
    """A provider with some keys."""

    def __init__(self, given: Mapping[str, bytes] | Exception) -> None:
        self.given = given
        self.asked = 0

    async def load(self) -> Mapping[str, bytes]:
        self.asked += 1
        if isinstance(self.given, Exception):
            raise self.given
        return self.given


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "moorings.db"
    schema.upgrade(f"sqlite:///{found}")
    return found


async def opened(path: Path, keys: Keys, *, at: int = START_MS) -> Store:
    store = open_store(f"sqlite:///{path}", keys=keys, clock=ManualClock(at))
    try:
        await store.open()
    except BaseException:
        await store.close()
        raise
    await store.enrol(Incarnation(owner="w1", deployment="d1"))
    return store


def ring(**keys: bytes) -> KeyRing:
    return KeyRing(keys)


# A provider


async def test_a_provider_is_asked_once_when_the_store_opens(path: Path) -> None:
    vault = Vault({"k1": OLD})
    store = await opened(path, vault)
    run_id = await parked(store)
    assert (vault.asked, await keys_in_use(store)) == (1, {"k1": 1})
    await store.close()
    store = await opened(path, ring(k1=OLD))
    assert len(await store.steps(run_id)) == 1
    await store.close()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (ConnectionError("kms is away"), "ConnectionError: kms is away"),
        ({}, "there is none"),
        ({"k1": b"short"}, "the key 'k1' is not 32 bytes"),
        ({"k1": "A" * KEY_BYTES}, "the key 'k1' is not 32 bytes"),
        ({"k 1": OLD}, "'k 1' is no id of a key"),
        ({1: OLD}, "1 is no id of a key"),
    ],
)
async def test_a_provider_without_good_keys_keeps_the_store_closed(path: Path, given: object, said: str) -> None:
    with pytest.raises(KeysNotGiven, match=said) as caught:
        await opened(path, Vault(given))  # type: ignore[arg-type]
    assert "AAAA" not in str(caught.value)


async def test_a_provider_that_hangs_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        async def load(self) -> Mapping[str, bytes]:
            await asyncio.Event().wait()
            raise AssertionError

    monkeypatch.setattr(keys_module, "LOAD_SECONDS", 0.0)
    with pytest.raises(KeysNotGiven, match="didn't answer"):
        await resolve(Silent())


# Wrong and missing keys


async def test_the_newest_data_s_key_is_needed_to_open(path: Path) -> None:
    store = await opened(path, ring(k1=OLD))
    run_id = await parked(store)
    await store.close()
    with pytest.raises(KeyMissing, match="'k1'"):
        await opened(path, ring(k2=NEW))
    with pytest.raises(KeyWrong, match="'k1'"):
        await opened(path, ring(k1=OTHER))
    store = await opened(path, ring(k2=NEW, k1=OLD))
    assert len(await store.steps(run_id)) == 1, "nothing was lost"
    await store.close()


async def test_a_run_without_its_key_waits_and_the_others_go_on(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = await opened(path, ring(k1=OLD))
    lost = await parked(store, address="lost")
    await store.close()
    store = await opened(path, ring(k2=NEW, k1=OLD), at=START_MS + 1)
    going = await parked(store, address="going")
    await store.close()
    store = await opened(path, ring(k2=NEW), at=START_MS + 2)
    with pytest.raises(KeyMissing, match="'k1'"):
        await store.admit(message(lost))
    await store.admit(message(going))
    assert [claim.run_id for claim in await claims(store)] == [going]
    with pytest.raises(KeyMissing, match="'k1'"):
        await store.steps(lost)
    done = await rewrap_all(store)
    assert (done.changed, done.in_use) == (0, {"k1": 1, "k2": 1})
    assert "'k1' is not in" in caplog.text
    await store.close()
    store = await opened(path, ring(k2=NEW, k1=OLD))
    assert len(await store.steps(lost)) == 1
    await store.close()


# Rotation


async def test_wrapping_anew_frees_the_old_key(path: Path) -> None:
    store = await opened(path, ring(k1=OLD))
    runs = [await parked(store, address=f"a{n}") for n in range(5)]
    await store.close()
    store = await opened(path, ring(k2=NEW, k1=OLD))
    sums: list[int] = []
    done = await rewrap_all(store, batch=2, on_batch=sums.append)
    assert (done.changed, done.in_use, sums) == (5, {"k2": 5}, [2, 4, 5])
    assert (await rewrap_all(store)).changed == 0
    await store.close()
    store = await opened(path, ring(k2=NEW))
    assert [len(await store.steps(run_id)) for run_id in runs] == [1] * 5
    await store.close()


async def test_broken_off_it_is_begun_again(path: Path) -> None:
    store = await opened(path, ring(k1=OLD))
    for n in range(5):
        await parked(store, address=f"a{n}")
    await store.close()
    store = await opened(path, ring(k2=NEW, k1=OLD))

    def break_off(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await rewrap_all(store, batch=2, on_batch=break_off)
    assert await keys_in_use(store) == {"k1": 3, "k2": 2}
    assert (await rewrap_all(store, batch=2)).changed == 3
    await store.close()


async def test_others_work_meanwhile(path: Path) -> None:
    store = await opened(path, ring(k1=OLD))
    runs = [await parked(store, address=f"a{n}") for n in range(4)]
    await store.close()
    worker, operator = await opened(path, ring(k2=NEW, k1=OLD)), await opened(path, ring(k2=NEW, k1=OLD))
    rewrapping = asyncio.create_task(rewrap_all(operator, batch=1))
    await asyncio.gather(*(worker.admit(message(run_id)) for run_id in runs))
    done = await rewrapping
    assert done.in_use == {"k2": 4}
    taken = await claims(worker)
    assert {claim.commands[0].body for claim in taken} == {body("hello")}
    assert len(taken) == 4
    await worker.close()
    await operator.close()


async def test_a_repeat_is_known_as_long_as_the_key_of_its_time_is_there(path: Path) -> None:
    store = await opened(path, ring(k1=OLD))
    first = await store.admit(message(to_address("a"), key="once"))
    await store.close()
    store = await opened(path, ring(k2=NEW, k1=OLD))
    await rewrap_all(store)
    again = await store.admit(message(to_address("a"), key="once"))
    assert (again.deduplicated, again.submission_id) == (True, first.submission_id)
    await store.close()
    store = await opened(path, ring(k2=NEW))
    with pytest.raises(Conflict):
        await store.admit(message(to_address("a"), key="once"))
    await store.close()
