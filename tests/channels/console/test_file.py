"""The console's file: shared by processes, safe from failures, private to its owner."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from channels import DeliveryFailed, Outbound
from channels.console import ConsolePlatform, ConsoleRefused

ROOT = Path(__file__).parents[3]

POSTER = """
import asyncio, sys
from channels import Outbound
from channels.console import ConsolePlatform

async def main(path, thread, name):
    platform = ConsolePlatform(path)
    for number in range(25):
        await platform.post_bot(f"{name}-{number}", thread, outbound_json=Outbound(f"{name} {number}").to_json())
    print((await platform.secret()).hex())
    await platform.close()

asyncio.run(main(*sys.argv[1:]))
"""

OPENER = """
import asyncio, sys
from channels.console import ConsolePlatform

async def main(path):
    sys.stdin.readline()
    platform = ConsolePlatform(path)
    await platform.create_thread("mine")
    print(await platform.platform_id(), (await platform.secret()).hex())
    await platform.close()

asyncio.run(main(*sys.argv[1:]))
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


async def test_several_processes_write_one_file(file_platform: ConsolePlatform, tmp_path: Path) -> None:
    path = str(tmp_path / "data" / "console.db")
    thread = await file_platform.create_thread("Shared")
    others = [start(POSTER, path, thread.id, name) for name in ("w1", "w2")]
    for number in range(25):
        await file_platform.post_person(thread.id, "alice", text=f"hello {number}", client_id=str(number))
    outputs = await asyncio.gather(*(asyncio.to_thread(other.communicate) for other in others))
    assert [other.returncode for other in others] == [0, 0]
    assert {out.strip() for out, _ in outputs} == {(await file_platform.secret()).hex()}
    messages = await file_platform.messages(thread.id)
    assert [message.seq for message in messages] == list(range(1, 76))
    assert len({message.version for message in messages}) == 75
    assert await file_platform.version() == 76
    assert len(await file_platform.undelivered()) == 25


async def test_processes_that_open_a_new_file_at_once_agree(tmp_path: Path) -> None:
    path = str(tmp_path / "new.db")
    others = [start(OPENER, path) for _ in range(6)]
    outputs = await asyncio.gather(*(asyncio.to_thread(other.communicate, "go\n") for other in others))
    assert [other.returncode for other in others] == [0] * 6
    assert len({out for out, _ in outputs}) == 1
    platform = ConsolePlatform(path)
    assert len(await platform.threads()) == 6
    await platform.close()


async def test_all_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "console.db"
    first = ConsolePlatform(path)
    thread = await first.create_thread("Kept")
    posted = await first.post_person(thread.id, "alice", text="hello", client_id="1")
    secret = await first.secret()
    await first.close()
    second = ConsolePlatform(path)
    assert await second.undelivered() == [posted.event]
    assert await second.secret() == secret
    assert (await second.post_person(thread.id, "alice", text="hello", client_id="1")).message == posted.message
    await second.close()


async def test_the_file_is_its_owners_only(file_platform: ConsolePlatform, tmp_path: Path) -> None:
    await file_platform.create_thread()
    files = list((tmp_path / "data").iterdir())
    assert len(files) == 3
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


async def test_a_commit_is_on_the_disk(file_platform: ConsolePlatform) -> None:
    def settings(db: sqlite3.Connection) -> list[object]:
        return [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous", "foreign_keys")]

    assert await file_platform.file.read(settings) == ["wal", 2, 1]


async def test_a_failed_write_leaves_nothing(platform: ConsolePlatform) -> None:
    thread = await platform.create_thread()
    before = await platform.version()
    bad: list[tuple[str, str]] = [("nobody", "unknown_thread")]
    for thread_id, code in bad:
        with pytest.raises(ConsoleRefused, match=code):
            await platform.post_bot("d1", thread_id, outbound_json=Outbound("hi").to_json())

    def fails(db: sqlite3.Connection) -> None:
        db.execute("UPDATE counter SET version = version + 1")
        raise sqlite3.OperationalError("disk I/O error")

    with pytest.raises(DeliveryFailed) as failure:
        await platform.file.write(fails)
    assert failure.value.retryable
    assert await platform.version() == before
    assert await platform.thread(thread.id) == thread


async def test_a_file_that_cant_be_used_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "console.db"
    path.write_bytes(b"this is no database" * 100)
    platform = ConsolePlatform(path)
    with pytest.raises(DeliveryFailed, match="unavailable"):
        await platform.version()
    path.unlink()  # it recovers as soon as the file does
    assert await platform.version() == 0
    await platform.close()
    with pytest.raises(DeliveryFailed, match="closed"):
        await platform.version()
    await platform.close()


async def test_a_cancelled_write_is_done_once_when_made_again(platform: ConsolePlatform) -> None:
    thread = await platform.create_thread()
    task = asyncio.ensure_future(platform.post_bot("d1", thread.id, outbound_json=Outbound("hi").to_json()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await platform.post_bot("d1", thread.id, outbound_json=Outbound("hi").to_json())
    assert len(await platform.messages(thread.id)) == 1


def test_a_file_is_opened_at_the_first_call_only(tmp_path: Path) -> None:
    path = tmp_path / "never.db"
    ConsolePlatform(path)
    assert list(tmp_path.iterdir()) == []
