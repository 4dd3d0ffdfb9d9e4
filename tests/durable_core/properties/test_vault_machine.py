"""The vault of a store against a dict, in any order of calls that hypothesis finds; and a check of the machine.

Nothing of it touches a run: it has a machine of its own, whose examples are short.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import Phase as Phases
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from durable_core.model import VaultEntry, VaultWrite
from durable_core.stores.sqlite.store import SqliteStore
from durable_core.testing.builders import MINUTE, START_MS, ms
from tests.durable_core.properties.test_store_machine import FULL, SETTINGS
from tests.durable_core.properties.world import FileWorld, MemoryWorld, PostgresWorld, World

T = TypeVar("T")

NAMES = ("a", "b", "c")
HOLDERS = ("h1", "h2")
TIMES = (None, 0, MINUTE, 3 * MINUTE)
"""From now until an entry is due, or has expired."""
KINDS = (
    *("write", "write", "pair", "pair", "hold", "hold", "under lease", "under lease"),
    *("release", "delete", "advance", "purge", "crash"),
)
QUICK = settings(SETTINGS, max_examples=1_000 if FULL else 40, stateful_step_count=50 if FULL else 30)
FEW = settings(QUICK, max_examples=500 if FULL else 20)
"""For stores that are shared, where each call takes its time."""


@dataclass(frozen=True)
class Expected:
    """An entry that was written."""

    entry: VaultEntry

    def at(self, now: int) -> VaultEntry | None:
        """Return it as it is to be read now."""
        entry = self.entry
        if entry.expires_at is not None and entry.expires_at <= now:
            return None
        over = entry.held_until is not None and entry.held_until <= now
        return replace(entry, holder=None, held_until=None) if over else entry


class VaultMachine(RuleBasedStateMachine):
    """Each rule does one call on both; the invariant reads all there is."""

    world: ClassVar[World | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.place = self.world or self.make()
        self.place.begin()
        self.now = START_MS
        self.at = 0
        self.entries: dict[str, Expected] = {}
        self.versions: set[tuple[str, int]] = set()

    def make(self) -> World:
        """Return a world for one example."""
        return MemoryWorld()

    def teardown(self) -> None:
        self.place.end()
        if self.world is None:
            self.place.close()

    def do(self, call: Coroutine[Any, Any, T]) -> T:
        """Wait for a call."""
        return self.place.loop.get_loop().run_until_complete(call)

    @rule(kind=st.sampled_from(KINDS), pick=st.integers(0, 1_000), flag=st.booleans())
    def happen(self, *, kind: str, pick: int, flag: bool) -> None:
        self.at = pick % len(self.place.stores)
        name = NAMES[pick % len(NAMES)]
        holder = HOLDERS[flag]
        if kind == "write":
            self.write(self.drafted(name, pick, right=flag))
        elif kind == "pair":
            self.write(self.drafted("b", pick, right=True), self.drafted("a" if pick % 2 else "c", pick // 7, right=flag))
        elif kind == "under lease":
            entry = self.standing(name)
            own = entry.holder if flag and entry is not None and entry.holder else holder
            self.write(replace(self.drafted(name, pick, right=True), expect=None, holder=own))
        elif kind == "delete":
            self.write(replace(self.drafted(name, pick, right=flag), value=None))
        elif kind == "hold":
            self.hold(name, holder)
        elif kind == "release":
            self.release(name, holder)
        elif kind == "advance":
            self.now = self.place.clock.advance(ms((1, MINUTE, 2 * MINUTE)[pick % 3]))
        elif kind == "purge":
            assert self.do(self.place.stores[self.at].purge(limit=10)) == []
            self.entries = {name: one for name, one in self.entries.items() if one.at(self.now)}
            ((left,),) = self.do(self.place.stores[self.at].rows("SELECT count(*) FROM moor_vault", {}))
            assert left == len(self.entries), "what has expired was kept, or more was deleted"
        else:
            self.place.crash(self.at)

    def standing(self, name: str) -> VaultEntry | None:
        """Return an entry as it is to be read now."""
        return self.entries[name].at(self.now) if name in self.entries else None

    def drafted(self, name: str, pick: int, *, right: bool) -> VaultWrite:
        """Write to a name over what is there, or over what isn't."""
        entry = self.standing(name)
        version = 0 if entry is None else entry.version
        until = TIMES[pick // 3 % 4]
        due = TIMES[pick // 12 % 4]
        return VaultWrite(
            name=name,
            kind=f"k{pick % 2}",
            owner=f"o{pick % 3}",
            value=str(pick).encode(),
            about=b"about",
            expect=version if right else (None, version + 1, 0)[pick // 5 % 3],
            due_at=None if due is None else self.now + due,
            expires_at=None if until is None else self.now + until,
        )

    def write(self, *writes: VaultWrite) -> None:
        versions = self.do(self.place.stores[self.at].vault_write(writes))
        may = all(self.may(write) for write in writes)
        assert (versions is not None) is may, "something was written that may not be, or not what may"
        for write, version in zip(writes, versions or (), strict=bool(versions)):
            if write.value is None:
                assert version == 0
                self.entries.pop(write.name, None)
                continue
            assert (write.name, version) not in self.versions, "a version came back"
            self.versions.add((write.name, version))
            before = self.standing(write.name)
            assert before is None or version > before.version
            self.entries[write.name] = Expected(
                VaultEntry(
                    name=write.name,
                    kind=write.kind,
                    owner=write.owner,
                    version=version,
                    value=write.value,
                    about=write.about,
                    due_at=write.due_at,
                    expires_at=write.expires_at,
                    created_at=self.now if before is None else before.created_at,
                    changed_at=self.now,
                    holder=None,
                    held_until=None,
                )
            )

    def may(self, write: VaultWrite) -> bool:
        """Whether an entry is as a write expects."""
        entry = self.standing(write.name)
        if write.holder is not None and (entry is None or entry.holder != write.holder):
            return False
        return write.expect is None or write.expect == (0 if entry is None else entry.version)

    def hold(self, name: str, holder: str) -> None:
        entry = self.standing(name)
        if entry is not None and entry.holder in (None, holder):
            entry = replace(entry, holder=holder, held_until=self.now + 2 * MINUTE)
            self.entries[name] = Expected(entry)
        assert self.do(self.place.stores[self.at].vault_hold(name, holder, ms=2 * MINUTE)) == entry, "a lease is another's"

    def release(self, name: str, holder: str) -> None:
        self.do(self.place.stores[self.at].vault_release(name, holder))
        entry = self.standing(name)
        if entry is not None and entry.holder == holder:
            self.entries[name] = Expected(replace(entry, holder=None, held_until=None))

    @invariant()
    def all_that_can_be_read_agrees(self) -> None:
        if self.place.stores:
            self.do(self.compare())

    async def compare(self) -> None:
        store = self.place.stores[self.at - 1]
        read, (listed, due) = await asyncio.gather(
            asyncio.gather(*(store.vault(name) for name in NAMES)),
            asyncio.gather(store.vault_list(limit=10), store.vault_due("k0", limit=10)),
        )
        here = [entry for name in NAMES if (entry := self.standing(name)) is not None]
        assert [entry for entry in read if entry is not None] == here, "an entry is another one"
        assert [(one.name, one.version, one.owner) for one in listed] == [(one.name, one.version, one.owner) for one in here]
        waiting = [one for one in here if one.kind == "k0" and one.due_at is not None and one.holder is None]
        wanted = sorted((one.due_at, one.name) for one in waiting if one.due_at is not None and one.due_at <= self.now)
        assert [(one.due_at, one.name) for one in due] == wanted, "something else is due"


def play(place: World | None, often: settings = QUICK) -> None:
    """Play all examples in one world, or each in a new one in memory."""

    class Machine(VaultMachine):
        world = place

    try:
        run_state_machine_as_test(Machine, settings=often)
    finally:
        if place is not None:
            place.close()


def test_a_vault_in_memory() -> None:
    play(None)


def test_two_vaults_on_one_file(tmp_path: Path) -> None:
    play(FileWorld(tmp_path), FEW)


def test_two_vaults_on_one_postgres_database(migrated_url: str) -> None:
    play(PostgresWorld(migrated_url), FEW)


# ── the machine itself: it has to find what is wrong ──


class Trusting(SqliteStore):
    """Write over whatever is there."""

    async def vault_write(self, writes: Sequence[VaultWrite]) -> tuple[int, ...] | None:
        return await super().vault_write([replace(write, expect=None) for write in writes])


class Lawless(SqliteStore):
    """Let a holder write whose lease is another's."""

    async def vault_write(self, writes: Sequence[VaultWrite]) -> tuple[int, ...] | None:
        return await super().vault_write([replace(write, holder=None) for write in writes])


class Piecemeal(SqliteStore):
    """Write one after another, as far as it goes."""

    async def vault_write(self, writes: Sequence[VaultWrite]) -> tuple[int, ...] | None:
        made = [await super(Piecemeal, self).vault_write([write]) for write in writes]
        return None if None in made else tuple(one[0] for one in made if one is not None)


class Eternal(SqliteStore):
    """Keep what has expired."""

    async def vault_write(self, writes: Sequence[VaultWrite]) -> tuple[int, ...] | None:
        return await super().vault_write([replace(write, expires_at=None) for write in writes])


class Snatching(SqliteStore):
    """Give the lease to whoever asks last."""

    async def vault_hold(self, name: str, holder: str, *, ms: int) -> VaultEntry | None:
        for other in HOLDERS:
            await self.vault_release(name, other)
        return await super().vault_hold(name, holder, ms=ms)


class Drowsy(SqliteStore):
    """See no more than what is due before all else."""

    async def vault_due(self, kind: str, *, limit: int) -> list[VaultEntry]:
        return await super().vault_due(kind, limit=1)


class Cluttered(SqliteStore):
    """Never delete what has expired."""

    async def purge(self, *, limit: int) -> list[str]:
        return []


BROKEN = (
    (Trusting, "something was written that may not be"),
    (Lawless, "something was written that may not be"),
    (Piecemeal, "an entry is another one"),
    (Eternal, "an entry is another one"),
    (Snatching, "a lease is another's"),
    (Drowsy, "something else is due"),
    (Cluttered, "what has expired was kept"),
)


@pytest.mark.parametrize(("broken", "finding"), BROKEN)
def test_the_machine_finds_a_broken_vault(broken: type[SqliteStore], finding: str) -> None:
    class Machine(VaultMachine):
        def make(self) -> World:
            return MemoryWorld(broken)

    Machine._hypothesis_internal_use_seed = 1
    quick = settings(QUICK, derandomize=False, phases=[Phases.generate], print_blob=False, report_multiple_bugs=False)
    with pytest.raises(AssertionError, match=finding):
        run_state_machine_as_test(Machine, settings=quick)
