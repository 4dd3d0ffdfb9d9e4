"""A ring reaches the other processes, or is lost without harm, wherever the database lies."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import socket
import stat
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from durable_core.errors import Broken
from durable_core.lifeline import Lifeline
from tests.durable_core.lifelines import (
    LISTEN,
    Heard,
    Other,
    files,
    files_of,
    names,
    only,
    stray_socket,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def database() -> Iterator[Path]:
    """A path short enough for sockets, whatever pytest's own folder is."""
    with tempfile.TemporaryDirectory(prefix="m") as folder:
        yield Path(folder) / "bot.db"


@pytest.fixture
def own(database: Path) -> Iterator[Lifeline]:
    with closing(Lifeline.open(database)) as lifeline:
        yield lifeline


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

    def test_a_loop_it_was_taken_from_does_not_hear_any_more(self, own: Lifeline, database: Path) -> None:
        async def listen() -> Heard:
            return Heard(own)

        async def turn() -> None:
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        with asyncio.Runner() as left, asyncio.Runner() as current, closing(Lifeline.open(database)) as second:
            left.run(listen())
            heard = current.run(listen())
            second.ring(["ses_1"])
            left.run(turn())
            assert heard.rings.empty()
            assert current.run(heard.next()) == ["ses_1"]


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
        bells = Path("/tmp") / f"moorings-{os.geteuid()}-{hashlib.sha256(folder).hexdigest()[:16]}"
        try:
            with closing(Lifeline.open(far)) as own:
                assert names(bells) == {f"{own.incarnation}.sock"}
                assert list(deep.iterdir()) == []
        finally:
            shutil.rmtree(bells, ignore_errors=True)
