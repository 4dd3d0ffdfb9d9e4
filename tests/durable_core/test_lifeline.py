"""Death of a process is seen at once by the others, and a ring reaches them; most of this takes real processes."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from durable_core.errors import Broken
from durable_core.lifeline import Lifeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
STRANGER = "inc_" + "0" * 26

HOLD = """
import os, subprocess, sys
from durable_core.lifeline import Lifeline
lifeline = Lifeline.open(sys.argv[1])
print(lifeline.incarnation, flush=True)
"""
WAIT = "sys.stdin.read()\n"
LEAVE_A_PROGRAM = """
subprocess.Popen([sys.executable, "-c", "import sys; print('child', flush=True); sys.stdin.read()"], close_fds=False)
"""
LEAVE_A_FORK = """
if os.fork() == 0:
    assert not lifeline.is_alive(lifeline.incarnation)
    lifeline.ring(["ses_1"])
    lifeline.sweep()
    lifeline.close()
    print("child", flush=True)
"""
LISTEN = """
import asyncio
async def main():
    loop, end = asyncio.get_running_loop(), asyncio.Event()
    lifeline.on_ring(lambda run_ids: print(run_ids, flush=True))
    loop.add_reader(sys.stdin.fileno(), end.set)
    print("listening", flush=True)
    await end.wait()
    lifeline.close()
asyncio.run(main())
"""


@pytest.fixture
def database() -> Iterator[Path]:
    """A path short enough for sockets, whatever pytest's own folder is."""
    with tempfile.TemporaryDirectory(prefix="m") as folder:
        yield Path(folder) / "bot.db"


@pytest.fixture
def own(database: Path) -> Iterator[Lifeline]:
    with closing(Lifeline.open(database)) as lifeline:
        yield lifeline


class Other:
    """Another process that holds a lifeline on the same database."""

    def __init__(self, database: Path, code: str = WAIT) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", HOLD + code, str(database)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.incarnation = self.line()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def finish(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def files(database: Path) -> set[str]:
    return names(Path(f"{database}.live"))


def only(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def files_of(incarnation: str) -> set[str]:
    return {f"{incarnation}.lock", f"{incarnation}.sock"}


def stray_socket(folder: Path, *, name: str = STRANGER) -> socket.socket:
    stray = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    stray.bind(str(folder / f"{name}.sock"))
    return stray


class Heard:
    """Collect rings and let a test wait for the next one."""

    def __init__(self, lifeline: Lifeline) -> None:
        self.rings: asyncio.Queue[list[str] | None] = asyncio.Queue()
        lifeline.on_ring(self.rings.put_nowait)

    async def next(self) -> list[str] | None:
        return await asyncio.wait_for(self.rings.get(), 30)


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


class TestRing:
    async def test_a_ring_reaches_another_process(self, own: Lifeline, database: Path) -> None:
        with Other(database, LISTEN) as other:
            assert await asyncio.to_thread(other.line) == "listening"
            own.ring(["ses_1", "ses_2"])
            assert await asyncio.to_thread(other.line) == "['ses_1', 'ses_2']"
            own.ring({"ses_3"})
            assert await asyncio.to_thread(other.line) == "['ses_3']"
            assert await asyncio.to_thread(other.finish) == 0
        assert files(database) == files_of(own.incarnation)

    async def test_it_is_not_heard_by_who_rings(self, own: Lifeline, database: Path) -> None:
        with closing(Lifeline.open(database)) as second:
            heard, heard_by_second = Heard(own), Heard(second)
            own.ring(["ses_1"])
            assert await heard_by_second.next() == ["ses_1"]
            second.ring(["ses_2"])
            assert await heard.next() == ["ses_2"]
            assert heard.rings.empty()

    async def test_what_came_before_anyone_listened_is_heard(self, own: Lifeline, database: Path) -> None:
        with closing(Lifeline.open(database)) as second:
            second.ring(["ses_1"])
            second.ring(["ses_2", "ses_1"])
            assert await Heard(own).next() == ["ses_1", "ses_2"]

    async def test_more_runs_than_fit_are_look_at_all(self, own: Lifeline, database: Path) -> None:
        with closing(Lifeline.open(database)) as second:
            heard = Heard(own)
            fitting = [f"ses_{number:026}" for number in range(30)]
            second.ring(fitting)
            assert await heard.next() == fitting
            second.ring([f"ses_{number:026}" for number in range(40)])
            assert await heard.next() is None
            second.ring(["\ud800"])
            assert await heard.next() is None

    async def test_a_burst_that_may_have_overflowed_is_look_at_all(self, own: Lifeline, database: Path) -> None:
        with closing(Lifeline.open(database)) as second:
            for number in range(5000):
                second.ring([f"ses_{number}"])
            assert await Heard(own).next() is None

    async def test_no_runs_are_no_ring(self, own: Lifeline, database: Path) -> None:
        with closing(Lifeline.open(database)) as second:
            heard = Heard(own)
            second.ring([])
            second.ring(["ses_1"])
            assert await heard.next() == ["ses_1"]

    async def test_garbage_is_not_heard(self, own: Lifeline, database: Path) -> None:
        folder = Path(f"{database}.live")
        garbage = [b"", b"hello", b"moor1", b"moor1{", b"moor1{}", b"moor1[1]", b'moor1["ses_1"', b'moor2["x"]', b"\xff" * 5000]
        garbage.append(b'moor1["' + b"x" * 2000 + b'"]')
        with closing(Lifeline.open(database)) as second, closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as stranger:
            heard = Heard(own)
            for datagram in garbage:
                await asyncio.get_running_loop().run_in_executor(
                    None, stranger.sendto, datagram, str(folder / f"{own.incarnation}.sock")
                )
            await asyncio.sleep(0)  # one turn of the loop, so that what is there is read
            second.ring(["ses_1"])
            assert await heard.next() in (["ses_1"], None)
            assert heard.rings.empty()

    def test_a_full_or_dead_socket_or_none_is_no_matter(self, own: Lifeline, database: Path) -> None:
        folder = Path(f"{database}.live")
        stray_socket(folder, name="inc_" + "1" * 26).close()
        (folder / f"inc_{'2' * 26}.sock").touch()
        (folder / f"inc_{'3' * 26}.sock").symlink_to("nowhere")
        with closing(stray_socket(folder)):
            for _ in range(3000):
                own.ring(["ses_1"])
        shutil.rmtree(folder)
        own.ring(["ses_1"])

    async def test_the_last_listener_counts_and_none_after_the_end(self, own: Lifeline, database: Path) -> None:
        second = Lifeline.open(database)
        first, last = Heard(second), Heard(second)
        own.ring(["ses_1"])
        assert await last.next() == ["ses_1"]
        assert first.rings.empty()
        own.ring(["ses_2"])
        second.close()
        second.on_ring(last.rings.put_nowait)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert last.rings.empty()

    def test_a_lifeline_moves_from_a_closed_loop_to_the_next(self, own: Lifeline, database: Path) -> None:
        async def hear() -> list[str] | None:
            heard = Heard(own)
            with closing(Lifeline.open(database)) as second:
                second.ring(["ses_1"])
            return await heard.next()

        assert asyncio.run(hear()) == ["ses_1"]
        assert asyncio.run(hear()) == ["ses_1"]


class TestLongPath:
    @pytest.fixture
    def temp(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """A temp folder of our own, for this process and its children; made after pytest made its own."""
        assert tmp_path.exists()
        with tempfile.TemporaryDirectory(prefix="m") as folder:
            monkeypatch.setattr(tempfile, "tempdir", folder)
            monkeypatch.setenv("TMPDIR", folder)
            yield Path(folder)

    @pytest.fixture
    def far(self, tmp_path: Path) -> Path:
        folder = tmp_path / ("d" * 120)
        folder.mkdir()
        return folder / "bot.db"

    async def test_a_path_too_long_for_a_socket_works(self, temp: Path, far: Path) -> None:
        with closing(Lifeline.open(far)) as own, Other(far, LISTEN) as other:
            bells = only(temp)
            assert stat.S_IMODE(bells.stat().st_mode) == 0o700
            assert names(bells) == {f"{own.incarnation}.sock", f"{other.incarnation}.sock"}
            assert files(far) == {f"{own.incarnation}.lock", f"{other.incarnation}.lock"}
            assert await asyncio.to_thread(other.line) == "listening"
            own.ring(["ses_1"])
            assert await asyncio.to_thread(other.line) == "['ses_1']"
            other.kill()
            assert not own.is_alive(other.incarnation)
            assert own.sweep() == (other.incarnation,)
            assert names(bells) == {f"{own.incarnation}.sock"}
            assert files(far) == {f"{own.incarnation}.lock"}

    def test_two_databases_do_not_share_sockets(self, temp: Path, far: Path) -> None:
        with closing(Lifeline.open(far)), closing(Lifeline.open(far.with_name("other.db"))):
            assert len(list(temp.iterdir())) == 2

    @pytest.mark.parametrize(
        ("plant", "reason"),
        [
            (lambda folder: folder.chmod(0o755), "entered by others"),
            (lambda folder: (folder.rename(folder.with_name("x")), folder.symlink_to(folder.with_name("x"))), "not a folder"),
            (lambda folder: (folder.rmdir(), folder.touch()), "not a folder"),
        ],
        ids=["open", "link", "file"],
    )
    def test_what_someone_planted_in_the_temp_folder_is_refused(
        self, temp: Path, far: Path, plant: Callable[[Path], Any], reason: str
    ) -> None:
        Lifeline.open(far).close()
        bells = only(temp)
        plant(bells)
        with pytest.raises(Broken, match=reason):
            Lifeline.open(far)

    def test_a_temp_folder_of_another_user_is_refused(self, temp: Path, far: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real, someone = os.geteuid(), os.geteuid() + 1
        Lifeline.open(far).close()
        bells = only(temp)
        bells.rename(bells.with_name(bells.name.replace(f"-{real}-", f"-{someone}-")))
        answers = iter([real])  # the folder beside the database is our own, the one in the temp folder is not
        monkeypatch.setattr(os, "geteuid", lambda: next(answers, someone))
        with pytest.raises(Broken, match="belongs to user"):
            Lifeline.open(far)

    def test_a_temp_folder_that_is_too_long_itself_is_not_used(
        self, far: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        deep = tmp_path / ("t" * 100)
        deep.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(deep))
        folder = os.fsencode(os.path.realpath(f"{far}.live"))
        bells = Path("/tmp") / f"moorings-{os.geteuid()}-{hashlib.sha256(folder).hexdigest()[:16]}"  # noqa: S108
        try:
            with closing(Lifeline.open(far)) as own:
                assert names(bells) == {f"{own.incarnation}.sock"}
                assert list(deep.iterdir()) == []
        finally:
            shutil.rmtree(bells, ignore_errors=True)


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
