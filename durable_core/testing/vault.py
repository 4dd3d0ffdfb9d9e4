"""S44–S47: what the vault promises.

What lives here: compare-and-set, leases, times, seals. What does not: asides (`asides`), replacing keys, which needs two rings.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from durable_core.errors import CannotOpen
from durable_core.model import VaultEntry, VaultListing, VaultWrite
from durable_core.store import Store
from durable_core.testing.bench import RACERS, StoreBench, WindableClock
from durable_core.testing.builders import ALICE, BOB, MINUTE, ms

NAME = "credential/tracker/alice"
SECRET = b"the-secret-token"


def entry(name: str = NAME, value: bytes = SECRET, *, owner: str = ALICE, kind: str = "credential") -> VaultWrite:
    """Return a write of an entry, whatever there is."""
    return VaultWrite(name=name, kind=kind, owner=owner, value=value, about=b"about it")


async def put(store: Store, write: VaultWrite | None = None) -> VaultEntry:
    """Write an entry, and read it."""
    write = write or entry()
    assert await store.vault_write((write,)) is not None
    return await read(store, write.name)


async def read(store: Store, name: str = NAME) -> VaultEntry:
    """Read an entry that is there."""
    found = await store.vault(name)
    assert found is not None, f"{name} is gone"
    return found


async def names(store: Store, *, kind: str | None = None, owner: str | None = None) -> list[str]:
    """Return what a list shows."""
    return [one.name for one in await store.vault_list(kind=kind, owner=owner, limit=100)]


async def held(store: Store, holder: str, *, ms_: int = MINUTE) -> str | None:
    """Ask for the lease; say who has it then."""
    found = await store.vault_hold(NAME, holder, ms=ms_)
    assert found is not None
    return found.holder


class Vault(StoreBench):
    """The vault: S44 to S47."""

    # ── S44 ──
    async def test_s44_an_entry_comes_back_as_it_was_written(self, store: Store, peer: Store, clock: WindableClock) -> None:
        due, over, made = clock.now_ms + MINUTE, clock.now_ms + 2 * MINUTE, clock.now_ms
        written = await store.vault_write((replace(entry(), expect=0, due_at=due, expires_at=over),))
        assert written is not None
        wanted = VaultEntry(
            name=NAME,
            kind="credential",
            owner=ALICE,
            version=written[0],
            value=SECRET,
            about=b"about it",
            due_at=due,
            expires_at=over,
            created_at=made,
            changed_at=made,
            holder=None,
            held_until=None,
        )
        assert (await read(store), await read(peer)) == (wanted, wanted)
        clock.advance(ms(5))
        again = await store.vault_write((VaultWrite(name=NAME, kind="other", owner=BOB, value=b"", expect=wanted.version),))
        assert again is not None
        assert again[0] > wanted.version > 0
        assert await read(peer) == VaultEntry(
            name=NAME,
            kind="other",
            owner=BOB,
            version=again[0],
            value=b"",
            about=b"",
            due_at=None,
            expires_at=None,
            created_at=made,
            changed_at=made + 5,
            holder=None,
            held_until=None,
        )

    async def test_s44_nothing_is_written_over_another_version(self, store: Store) -> None:
        assert await store.vault(NAME) is None
        assert await store.vault_write((replace(entry(), expect=1),)) is None
        first = await put(store, replace(entry(), expect=0))
        for expect in (0, first.version - 1, first.version + 1):
            assert await store.vault_write((replace(entry(value=b"mine"), expect=expect),)) is None
            assert await store.vault_write((VaultWrite(name=NAME, value=None, expect=expect),)) is None
        assert await read(store) == first
        assert (await put(store, entry(value=b"whatever was there"))).value == b"whatever was there"

    async def test_s44_all_of_a_call_or_none(self, store: Store) -> None:
        first = await put(store)
        asked = (entry("b"), replace(entry(value=b"new"), expect=first.version + 1), entry("a"))
        assert await store.vault_write(asked) is None
        assert (await names(store), await read(store)) == ([NAME], first)
        versions = await store.vault_write((asked[0], VaultWrite(name=NAME, value=None, expect=first.version), asked[2]))
        assert versions is not None
        assert versions == ((await read(store, "b")).version, 0, (await read(store, "a")).version)
        assert await names(store) == ["a", "b"]
        assert await store.vault_write(()) == ()

    async def test_s44_one_name_once_a_call(self, store: Store) -> None:
        with pytest.raises(ValueError, match="one name"):
            await store.vault_write((entry(), entry()))
        assert await names(store) == []

    async def test_s44_no_version_comes_back(self, store: Store) -> None:
        """Who holds the version of an entry that was deleted doesn't hit the one made after it."""
        seen: set[int] = set()
        for _ in range(4):
            made = await put(store, replace(entry(), expect=0))
            changed = await put(store, replace(entry(), expect=made.version))
            assert not {made.version, changed.version} & seen
            assert made.version < changed.version < 2**53
            seen |= {made.version, changed.version}
            assert await store.vault_write((VaultWrite(name=NAME, value=None, expect=changed.version),)) == (0,)
            assert await store.vault(NAME) is None
        assert await store.vault_write((VaultWrite(name=NAME, value=None),)) == (0,)

    async def test_s44_of_twenty_racing_connections_one_writes(self, store: Store, clock: WindableClock, tmp_path: Path) -> None:
        async with self.racers(store, clock, tmp_path) as stores:
            expect = 0
            for _ in range(3):
                tries = [replace(entry(value=str(number).encode()), expect=expect) for number in range(RACERS)]
                versions = await asyncio.gather(*(one.vault_write((write,)) for one, write in zip(stores, tries, strict=True)))
                ((number, version),) = [(number, found[0]) for number, found in enumerate(versions) if found is not None]
                stands = await read(store)
                assert (stands.value, stands.version) == (str(number).encode(), version)
                expect = version

    async def test_s44_racing_writes_of_several_entries_are_whole(
        self, store: Store, clock: WindableClock, tmp_path: Path
    ) -> None:
        def pair(number: int) -> tuple[VaultWrite, ...]:
            both = entry("a", str(number).encode()), entry("b", str(number).encode())
            return both if number % 2 else both[::-1]

        async with self.racers(store, clock, tmp_path) as stores:
            written = await asyncio.gather(*(one.vault_write(pair(number)) for number, one in enumerate(stores)))
        assert None not in written
        assert (await read(store, "a")).value == (await read(store, "b")).value

    # ── S45 ──
    async def test_s45_of_twenty_racing_connections_one_gets_the_lease(
        self, store: Store, clock: WindableClock, tmp_path: Path
    ) -> None:
        await put(store)
        async with self.racers(store, clock, tmp_path) as stores:
            for _ in range(3):
                asked = [one.vault_hold(NAME, f"h{number}", ms=MINUTE) for number, one in enumerate(stores)]
                found = await asyncio.gather(*asked)
                assert len({one and one.holder for one in found}) == 1
                clock.advance(ms(MINUTE))

    async def test_s45_a_lease_is_one_holder_s_until_it_is_over(self, store: Store, peer: Store, clock: WindableClock) -> None:
        before = await put(store)
        mine = await store.vault_hold(NAME, "mine", ms=MINUTE)
        assert mine == replace(before, holder="mine", held_until=clock.now_ms + MINUTE)
        clock.advance(ms(MINUTE - 1))
        assert await peer.vault_hold(NAME, "theirs", ms=MINUTE) == mine
        assert await read(peer) == mine
        clock.advance(ms(1))
        assert await read(peer) == before
        assert await held(peer, "theirs") == "theirs"
        assert await held(store, "mine") == "theirs"

    async def test_s45_a_holder_may_prolong_and_give_back_its_own_alone(self, store: Store, clock: WindableClock) -> None:
        await put(store)
        assert await held(store, "mine") == "mine"
        clock.advance(ms(MINUTE - 1))
        assert await held(store, "mine") == "mine"
        clock.advance(ms(MINUTE - 1))
        await store.vault_release(NAME, "theirs")
        assert await held(store, "theirs") == "mine"
        await store.vault_release(NAME, "mine")
        assert (await read(store)).holder is None
        assert await held(store, "theirs") == "theirs"

    async def test_s45_a_write_under_the_lease_ends_it(self, store: Store) -> None:
        await put(store)
        await held(store, "mine")
        write = replace(entry(value=b"fresh"), holder="mine")
        assert (await put(store, write)).holder is None
        assert await store.vault_write((write,)) is None

    async def test_s45_a_stale_holder_writes_nothing(self, store: Store, peer: Store, clock: WindableClock) -> None:
        await put(store)
        await held(store, "stale")
        late = replace(entry(value=b"late"), holder="stale")
        clock.advance(ms(MINUTE))
        assert await store.vault_write((late,)) is None, "the lease is over, though nobody else has taken it"
        await held(peer, "next")
        assert await store.vault_write((late,)) is None
        assert (await put(peer, replace(entry(value=b"new"), holder="next"))).value == b"new"
        assert await store.vault_write((late, entry("other"))) is None
        assert await names(store) == [NAME]

    async def test_s45_whoever_writes_meanwhile_ends_it(self, store: Store) -> None:
        """Somebody who disconnects is not undone by a refresh that was on its way."""
        await put(store)
        await held(store, "mine")
        assert (await put(store, entry(value=b"by another"))).holder is None
        late = replace(entry(value=b"late"), holder="mine")
        assert await store.vault_write((late,)) is None
        await held(store, "mine")
        assert await store.vault_write((VaultWrite(name=NAME, value=None),)) == (0,)
        assert await store.vault_write((late,)) is None
        await put(store)
        assert await store.vault_write((late,)) is None, "another entry by its name"

    async def test_s45_what_is_not_there_has_no_lease(self, store: Store) -> None:
        assert await store.vault_hold(NAME, "mine", ms=MINUTE) is None
        await store.vault_release(NAME, "mine")
        assert await store.vault_write((replace(entry(), holder="mine"),)) is None
        assert await names(store) == []

    # ── S46 ──
    async def test_s46_what_has_expired_is_not_there(self, store: Store, clock: WindableClock) -> None:
        first = await put(store, replace(entry(), due_at=clock.now_ms, expires_at=clock.now_ms + MINUTE))
        await held(store, "mine")
        clock.advance(ms(MINUTE - 1))
        assert await names(store) == [NAME]
        clock.advance(ms(1))
        assert await store.vault(NAME) is None
        assert await names(store) == []
        assert await store.vault_due("credential", limit=10) == []
        assert await store.vault_hold(NAME, "mine", ms=MINUTE) is None
        assert await store.vault_write((replace(entry(), expect=first.version),)) is None
        assert await store.vault_write((replace(entry(), holder="mine"),)) is None
        clock.advance(ms(1))
        anew = await put(store, replace(entry(value=b"new"), expect=0))
        assert (anew.value, anew.created_at, anew.holder) == (b"new", clock.now_ms, None)
        assert anew.version != first.version

    async def test_s46_a_purge_deletes_what_has_expired_and_nothing_else(self, store: Store, clock: WindableClock) -> None:
        for number in range(3):
            await put(store, replace(entry(f"e{number}"), expires_at=clock.now_ms + 1 + number))
        await put(store, entry("stays"))
        clock.advance(ms(2))
        assert await store.purge(limit=10) == []
        assert await store.rows("SELECT name FROM moor_vault ORDER BY name", {}) == [("e2",), ("stays",)]

    async def test_s46_due_are_those_whose_time_has_come(self, store: Store, clock: WindableClock) -> None:
        now = clock.now_ms
        for name, due in (("c", now), ("a", now - 5), ("b", now - 5), ("later", now + 1), ("never", None)):
            await put(store, replace(entry(name), due_at=due))
        await put(store, replace(entry("other", kind="sign-in"), due_at=now))
        assert [one.name for one in await store.vault_due("credential", limit=10)] == ["a", "b", "c"]
        assert await store.vault_due("credential", limit=1) == [await read(store, "a")]
        await store.vault_hold("a", "mine", ms=MINUTE)
        assert [one.name for one in await store.vault_due("credential", limit=10)] == ["b", "c"]
        clock.advance(ms(MINUTE))
        assert [one.name for one in await store.vault_due("credential", limit=10)] == ["a", "b", "c", "later"]

    async def test_s46_a_list_shows_by_name_what_was_asked_for(self, store: Store, clock: WindableClock) -> None:
        for number in range(5):
            await put(store, entry(f"e{number}", owner=ALICE if number % 2 else BOB, kind=f"k{number // 3}"))
        assert await names(store) == [f"e{number}" for number in range(5)]
        assert await names(store, owner=ALICE) == ["e1", "e3"]
        assert await names(store, kind="k0") == ["e0", "e1", "e2"]
        assert await names(store, kind="k0", owner=BOB) == ["e0", "e2"]
        assert await names(store, owner="nobody") == []
        (second,) = await store.vault_list(owner=BOB, after="e0", limit=1)
        assert second == VaultListing(
            name="e2",
            kind="k0",
            owner=BOB,
            version=(await read(store, "e2")).version,
            about=b"about it",
            due_at=None,
            expires_at=None,
            created_at=clock.now_ms,
            changed_at=clock.now_ms,
        )

    # ── S47 ──
    async def test_s47_no_value_lies_there_in_the_clear(self, store: Store) -> None:
        for name in ("a", "b"):
            await put(store, entry(name))
        sealed = [value for (value,) in await store.rows("SELECT sealed FROM moor_vault", {}) if isinstance(value, bytes)]
        assert all(SECRET not in value for value in sealed)
        assert len(set(sealed)) == 2
        assert SECRET.decode() not in repr(await read(store, "a"))
        assert SECRET.decode() not in repr(entry())

    @pytest.mark.parametrize("column", ["name", "kind", "owner", "version"])
    async def test_s47_a_changed_row_does_not_open(self, store: Store, column: str) -> None:
        made = await put(store)
        forged: str | int = made.version + 1 if column == "version" else "forged"
        await self.forge(store, f"UPDATE moor_vault SET {column} = :forged", forged=forged)  # noqa: S608 - names from the list above
        name = "forged" if column == "name" else NAME
        with pytest.raises(CannotOpen) as told:
            await store.vault(name)
        assert (told.value.table, told.value.row, told.value.column) == ("moor_vault", name, "sealed")
        with pytest.raises(CannotOpen):
            await store.vault_hold(name, "mine", ms=MINUTE)
        assert await names(store) == [name], "a list opens nothing"
        assert (await put(store, entry(name))).value == SECRET

    async def test_s47_rows_that_were_swapped_do_not_open(self, store: Store) -> None:
        await put(store, entry("alice", b"hers"))
        await put(store, entry("bob", b"his", owner=BOB))
        stored = await store.rows("SELECT name, sealed FROM moor_vault ORDER BY name", {})
        for (name, _), (_, sealed) in zip(stored, reversed(stored), strict=True):
            await self.forge(store, "UPDATE moor_vault SET sealed = :sealed WHERE name = :name", sealed=sealed, name=name)
        for name in ("alice", "bob"):
            with pytest.raises(CannotOpen):
                await store.vault(name)

    async def test_s47_a_value_of_another_version_does_not_open(self, store: Store) -> None:
        await put(store)
        ((old,),) = await store.rows("SELECT sealed FROM moor_vault", {})
        await put(store, entry(value=b"new"))
        await self.forge(store, "UPDATE moor_vault SET sealed = :old", old=old)
        with pytest.raises(CannotOpen):
            await store.vault(NAME)

    async def test_s47_what_does_not_open_stops_no_other(self, store: Store, clock: WindableClock) -> None:
        for name in ("a", "b", "c", "d"):
            await put(store, replace(entry(name), due_at=clock.now_ms))
        await self.forge(store, "UPDATE moor_vault SET owner = :forged WHERE name < 'c'", forged=BOB)
        for limit in (1, 2, 10):
            assert [one.name for one in await store.vault_due("credential", limit=limit)] == ["c", "d"][:limit]
        assert (await read(store, "c")).value == SECRET

    async def test_s47_wrapping_anew_changes_nothing_else(self, store: Store) -> None:
        before = [await put(store, entry(f"e{number}")) for number in range(5)]
        after: str | None = ""
        rounds = 0
        while after is not None:
            after, changed = await store.rewrap(after=after, limit=2)
            assert changed == 0  # they are sealed with the current key
            rounds += 1
        assert rounds == 4
        assert [await read(store, one.name) for one in before] == before
