"""Death of a process is seen at once by the others; most of this takes real processes."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from durable_core.errors import Broken
from durable_core.lifeline import Lifeline
from tests.durable_core.lifelines import (
    LEAVE_A_FORK,
    LEAVE_A_PROGRAM,
    STRANGER,
    WAIT,
    Other,
    files,
    files_of,
    stray_socket,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def database() -> Iterator[Path]:
    """A path short enough for sockets, whatever pytest's own folder is."""
    with tempfile.TemporaryDirectory(prefix="m") as folder:
        yield Path(folder) / "bot.db"


@pytest.fixture
def own(database: Path) -> Iterator[Lifeline]:
    with closing(Lifeline.open(database)) as lifeline:
        yield lifeline


class TestLife:
    def test_a_killed_process_is_dead_at_once_and_its_files_are_swept(self, own: Lifeline, database: Path) -> None:
        with Other(database) as other, Other(database) as third:
            assert own.is_alive(other.incarnation)
            assert own.sweep() == ()
            other.kill()
            assert not own.is_alive(other.incarnation)
            assert files_of(other.incarnation) < files(database)
            assert own.sweep() == (other.incarnation,)
            assert files(database) == files_of(own.incarnation) | files_of(third.incarnation)
            assert own.is_alive(third.incarnation)
            assert own.sweep() == ()

    def test_each_opening_is_another_incarnation(self, own: Lifeline, database: Path) -> None:
        with closing(Lifeline.open(database)) as second:
            assert second.incarnation != own.incarnation
            assert own.is_alive(second.incarnation)
            assert second.is_alive(own.incarnation)

    def test_its_own_life_is_known_without_looking(self, own: Lifeline, database: Path) -> None:
        shutil.rmtree(f"{database}.live")
        assert own.is_alive(own.incarnation)

    def test_closing_leaves_nothing_behind_and_twice_is_once(self, own: Lifeline, database: Path) -> None:
        second = Lifeline.open(database)
        second.close()
        second.close()
        assert not own.is_alive(second.incarnation)
        assert not second.is_alive(second.incarnation)
        assert files(database) == files_of(own.incarnation)
        second.ring(["ses_1"])
        assert second.sweep() == ()

    @pytest.mark.parametrize("name", ["", STRANGER, "inc_", "../bot", "../" * 3 + "etc/passwd", STRANGER + "\n", STRANGER + "\0"])
    def test_who_never_lived_is_dead(self, own: Lifeline, name: str) -> None:
        assert not own.is_alive(name)

    def test_two_who_look_at_once_do_not_take_each_other_for_the_living(self, own: Lifeline, database: Path) -> None:
        with Other(database) as other:
            other.kill()
            with (Path(f"{database}.live") / f"{other.incarnation}.lock").open() as looked_at:
                fcntl.flock(looked_at, fcntl.LOCK_SH)
                assert not own.is_alive(other.incarnation)
                assert own.sweep() == (other.incarnation,)

    @pytest.mark.parametrize("leave", [LEAVE_A_PROGRAM, LEAVE_A_FORK], ids=["a program", "a fork"])
    def test_a_child_that_outlives_its_parent_does_not_keep_it_alive(self, own: Lifeline, database: Path, leave: str) -> None:
        with Other(database, leave + WAIT) as other:
            assert other.line() == "child"
            assert own.is_alive(other.incarnation)  # what the child closed is its own copy
            assert files_of(other.incarnation) < files(database)
            other.kill()
            assert not own.is_alive(other.incarnation)

    def test_one_database_by_two_names_is_one_folder(self, own: Lifeline, database: Path) -> None:
        alias = database.with_name("alias.db")
        alias.symlink_to(database)
        with closing(Lifeline.open(alias)) as second:
            assert own.is_alive(second.incarnation)
            assert second.is_alive(own.incarnation)


class TestStart:
    def test_a_lock_file_left_by_a_start_that_was_killed_is_swept(self, own: Lifeline, database: Path) -> None:
        (Path(f"{database}.live") / f"{STRANGER}.new").touch()
        stray_socket(Path(f"{database}.live")).close()
        own.sweep()
        assert files(database) == files_of(own.incarnation)

    def test_a_start_that_a_sweep_takes_for_dead_starts_again(
        self, own: Lifeline, database: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = fcntl.flock
        swept: list[int] = []

        def flock(descriptor: int, operation: int) -> None:
            if operation & fcntl.LOCK_EX and not swept:
                swept.append(operation)
                assert own.sweep() == ()  # between the making of the file and its lock
            real(descriptor, operation)

        monkeypatch.setattr(fcntl, "flock", flock)
        with closing(Lifeline.open(database)) as second:
            assert swept
            assert own.is_alive(second.incarnation)
            assert files(database) == files_of(own.incarnation) | files_of(second.incarnation)

    def test_a_sweep_spares_the_socket_of_who_has_not_got_its_name_yet(
        self, own: Lifeline, database: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = Path.rename
        renamed: list[str] = []

        def rename(path: Path, target: Path) -> Path:
            renamed.append(path.stem)
            assert own.sweep() == ()
            return real(path, target)

        monkeypatch.setattr(Path, "rename", rename)
        with closing(Lifeline.open(database)) as second:
            assert renamed == [second.incarnation]
            assert files(database) == files_of(own.incarnation) | files_of(second.incarnation)

    def test_starts_ends_and_sweeps_at_once_never_bury_the_living(self, database: Path) -> None:
        def live(_: int) -> bool:
            good = True
            for _ in range(40):
                with closing(Lifeline.open(database)) as one, closing(Lifeline.open(database)) as two:
                    one.sweep()
                    good = good and one.is_alive(two.incarnation) and two.is_alive(one.incarnation)
                    good = good and files_of(one.incarnation) | files_of(two.incarnation) <= files(database)
            return good

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(live, range(8)))
        assert files(database) == set()

    def test_files_of_others_in_the_folder_are_left_alone(self, own: Lifeline, database: Path) -> None:
        (Path(f"{database}.live") / "README").touch()
        (Path(f"{database}.live") / f"{STRANGER}.txt").touch()
        own.sweep()
        assert {"README", f"{STRANGER}.txt"} < files(database)


class TestFolder:
    def test_nobody_else_can_enter_it(self, own: Lifeline, database: Path) -> None:
        folder = Path(f"{database}.live")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / f"{own.incarnation}.lock").stat().st_mode) == 0o600

    def test_an_open_folder_beside_the_database_is_closed(self, database: Path) -> None:
        folder = Path(f"{database}.live")
        folder.mkdir()
        folder.chmod(0o777)
        Lifeline.open(database).close()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    def test_a_link_is_refused(self, database: Path) -> None:
        elsewhere = database.with_name("elsewhere")
        elsewhere.mkdir(mode=0o700)
        Path(f"{database}.live").symlink_to(elsewhere)
        with pytest.raises(Broken, match="not a folder"):
            Lifeline.open(database)
        assert list(elsewhere.iterdir()) == []

    def test_a_folder_of_another_user_is_refused(self, own: Lifeline, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        del own
        someone = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: someone)
        with pytest.raises(Broken, match="belongs to user"):
            Lifeline.open(database)

    def test_a_database_in_no_folder_is_broken(self, database: Path) -> None:
        with pytest.raises(Broken, match="No such file"):
            Lifeline.open(database.parent / "no" / "bot.db")


class TestMemory:
    @pytest.mark.parametrize("path", [":memory:", ""])
    async def test_a_database_in_memory_has_nobody_else(self, path: str) -> None:
        one, other = Lifeline.open(path), Lifeline.open(path)
        assert one.is_alive(one.incarnation)
        assert not one.is_alive(other.incarnation)
        one.on_ring(lambda _: pytest.fail("nobody can ring"))
        other.ring(["ses_1"])
        assert one.sweep() == ()
        one.close()
        one.close()
        assert not one.is_alive(one.incarnation)
