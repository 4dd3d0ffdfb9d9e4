"""The commands that keep what is stored in order, in real processes on one file."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from bot.forget import forget_principal, traces
from bot.housekeeping import told_of_keys
from bot.principal import Principal
from bot.turn.state import MessageBody, body_to_json
from channels.events import Place, Standing
from durable_core import codec, schema
from durable_core.clock import DatabaseClock
from durable_core.crypto import KeyRing, new_key_entry
from durable_core.errors import ContentGone
from durable_core.ids import new_id
from durable_core.keys import Rewrapped, rewrap_all
from durable_core.model import Admission, CommandKind, NewRun, Run, RunStatus, ToAddress, VaultWrite
from durable_core.stores.open import open_store
from tests.bot.command import environment, refusal, run

PROVIDER = """
import base64
from bot.agent import Agent
from bot.app import Bot
from bot.scripted import ScriptedModel

class Vault:
    async def load(self):
        return {"vault": b"v" * 32}

bot = Bot(agents=[Agent("helper", ScriptedModel(), instructions="Help.")], keys=Vault())
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    made = f"sqlite:///{tmp_path / 'm.db'}"
    schema.upgrade(made)
    return made


async def said(url: str, keys: KeyRing, *lines: tuple[str, str, str]) -> list[str]:
    """Let people write: (address, who, what); the sessions by address, in order."""
    store = open_store(url, keys=keys, clock=DatabaseClock())
    await store.open()
    found: dict[str, str] = {}
    for address, who, text in lines:
        body = MessageBody(text=text, author=Principal(who, who.title(), Standing.MEMBER), place=Place("channel"))
        new = NewRun(run_id=new_id("ses"), name="helper", creator=who, header=codec.encode({}), deployment="d", lifetime_ms=None)
        admission = Admission(
            source="slack",
            key=new_id("key"),
            digest=b"",
            on_conflict="merge",
            submission_id=new_id("sub"),
            target=ToAddress(channel="slack", address=address, new=new),
            kind=CommandKind.MESSAGE,
            body=codec.encode(body_to_json(body)),
            principal=who,
        )
        found[address] = (await store.admit(admission)).run_id
    await store.close()
    return list(found.values())


async def connected(url: str, keys: KeyRing, *who: str) -> None:
    """Put an entry into the vault for each of these people."""
    store = open_store(url, keys=keys, clock=DatabaseClock())
    await store.open()
    await store.vault_write([VaultWrite(name=f"account/{one}", kind="credential", owner=one, value=b"token") for one in who])
    await store.close()


async def look(url: str, keys: KeyRing, run_id: str) -> tuple[Run, str | None]:
    """A session and its first message's text; None where it is gone."""
    store = open_store(url, keys=keys, clock=DatabaseClock())
    await store.open()
    try:
        content = codec.decode((await store.content(run_id, ["command:1"]))["command:1"])
        text = content["text"] if isinstance(content, dict) else None
    except ContentGone:
        text = None
    found = await store.run(run_id)
    await store.close()
    return found, None if text is None else str(text)


# rekey


def test_rekey_says_what_was_done_and_which_key_may_go(tmp_path: Path, url: str) -> None:
    old, new = new_key_entry(), new_key_entry()
    old_id, new_id_ = old.partition(":")[0], new.partition(":")[0]
    runs = asyncio.run(said(url, KeyRing.parse(old), ("a", "slack:U1", "one"), ("b", "slack:U2", "two")))
    env = environment(MOORINGS_DATABASE_URL=url, MOORINGS_ENCRYPTION_KEYS=f"{new},{old}")
    done = run(tmp_path, "rekey", env=env)
    assert done.returncode == 0, done.stderr
    assert f"Wrapped anew by {new_id_}: 2 sessions." in done.stdout
    assert f"Keys in use: {new_id_} (2 sessions)." in done.stdout
    assert f"Not needed to read anything any more: {old_id}." in done.stdout
    assert "Idempotency-Key" in done.stdout
    again = run(tmp_path, "rekey", env=env)
    assert f"Wrapped anew by {new_id_}: 0 sessions." in again.stdout
    assert asyncio.run(look(url, KeyRing.parse(new), runs[0]))[1] == "one"


def test_what_is_said_of_keys_that_are_missing_or_came_back() -> None:
    lines = told_of_keys(Rewrapped(changed=1, in_use={"k3": 5, "k2": 1, "k0": 2}), ["k3", "k2", "k1"])
    assert lines[:4] == [
        "Wrapped anew by k3: 1 session.",
        "Keys in use: k3 (5 sessions), k2 (1 session), k0 (2 sessions).",
        "k2 is still used by 1 session: some process has the old order of keys. Restart it, rekey again.",
        "k0 is not in the ring; 2 sessions can't be read until it is back.",
    ]
    assert lines[4] == "Not needed to read anything any more: k1."
    assert told_of_keys(Rewrapped(changed=0, in_use={}), ["k1"])[1:] == ["Keys in use: none."]


def test_what_is_said_of_keys_that_the_vault_needs() -> None:
    lines = told_of_keys(Rewrapped(changed=2, in_use={"k3": 5}, entries=3, entries_in_use={"k3": 1, "k2": 4}), ["k3", "k2", "k1"])
    assert lines[:4] == [
        "Wrapped anew by k3: 2 sessions, 3 vault entries.",
        "Keys in use: k3 (5 sessions, 1 vault entry), k2 (4 vault entries).",
        "k2 is still used by 4 vault entries: some process has the old order of keys. Restart it, rekey again.",
        "Not needed to read anything any more: k1.",
    ]


def test_rekey_with_the_wrong_ring_names_the_key(tmp_path: Path, url: str) -> None:
    old = new_key_entry()
    asyncio.run(said(url, KeyRing.parse(old), ("a", "slack:U1", "one")))
    env = environment(MOORINGS_DATABASE_URL=url, MOORINGS_ENCRYPTION_KEYS=new_key_entry())
    assert f"encryption key '{old.partition(':')[0]}' is not in" in refusal(run(tmp_path, "rekey", env=env))


def test_a_bot_s_own_keys_are_used(tmp_path: Path, url: str) -> None:
    (tmp_path / "app.py").write_text(PROVIDER)
    asyncio.run(said(url, KeyRing({"vault": b"v" * 32}), ("a", "slack:U1", "one")))
    env = environment(MOORINGS_DATABASE_URL=url)
    assert "Keys in use: vault (1 session)." in run(tmp_path, "rekey", "--app", "app:bot", env=env).stdout
    assert "MOORINGS_ENCRYPTION_KEYS is not set" in refusal(run(tmp_path, "rekey", env=env))


# forget


def test_operators_commands_ask_a_bot_for_its_own_keys(tmp_path: Path, url: str) -> None:
    (tmp_path / "app.py").write_text(PROVIDER)
    (session,) = asyncio.run(said(url, KeyRing({"vault": b"v" * 32}), ("slack:v1:C1", "slack:T1:U1", "hello")))
    env = environment(MOORINGS_DATABASE_URL=url)
    for command in (("runs",), ("sessions",), ("inspect", session), ("cancel", session), ("resume", session), ("outbox",)):
        done = run(tmp_path, *command, "--app", "app:bot", env=env)
        assert done.returncode == 0, (command, done.stderr)
    assert run(tmp_path, "work", "app:bot", "--until-idle", env=env).returncode == 0


def test_a_run_that_can_not_be_read_keeps_no_other_from_being_retired(tmp_path: Path, url: str) -> None:
    old, new = new_key_entry(), new_key_entry()
    lost, *others = [(f"slack:v1:C{number}", "slack:T1:U1", "hello") for number in range(3)]
    (unread,) = asyncio.run(said(url, KeyRing.parse(old), lost))
    ended = asyncio.run(said(url, KeyRing.parse(f"{new},{old}"), *others))
    env = environment(MOORINGS_DATABASE_URL=url, MOORINGS_ENCRYPTION_KEYS=new)
    done = run(tmp_path, "runs", "retire", "--deployment", "d", "--end", env=env)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()[:2]) == sorted(ended)
    assert unread in done.stderr
    assert unread in run(tmp_path, "sessions", env=env).stdout


def test_rekey_says_once_that_a_key_is_missing_however_many_it_had(tmp_path: Path, url: str) -> None:
    old, new = new_key_entry(), new_key_entry()
    lines = [(f"slack:v1:C{number}", "slack:T1:U1", "hello") for number in range(20)]
    asyncio.run(said(url, KeyRing.parse(old), *lines))
    asyncio.run(said(url, KeyRing.parse(f"{new},{old}"), ("slack:v1:D1", "slack:T1:U1", "hello")))
    done = run(tmp_path, "rekey", env=environment(MOORINGS_DATABASE_URL=url, MOORINGS_ENCRYPTION_KEYS=new))
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert "and those of 19 more" in line
    assert "20 sessions can't be read until it is back" in done.stdout


def test_forget_a_session(tmp_path: Path, url: str) -> None:
    key = new_key_entry()
    [kept, gone] = asyncio.run(said(url, KeyRing.parse(key), ("a", "slack:U1", "one"), ("b", "slack:U2", "two")))
    env = environment(MOORINGS_DATABASE_URL=url, MOORINGS_ENCRYPTION_KEYS=key)
    assert "Add --yes" in refusal(run(tmp_path, "forget", gone, env=env))
    assert asyncio.run(look(url, KeyRing.parse(key), gone))[1] == "two"
    assert run(tmp_path, "forget", gone, "--yes", env=env).stdout == f"Forgotten: {gone}.\n"
    assert "forgotten before" in run(tmp_path, "forget", gone, "--yes", env=env).stdout
    ended, text = asyncio.run(look(url, KeyRing.parse(key), gone))
    assert (ended.status, ended.end_reason, text) == (RunStatus.ENDED, "forgotten", None)
    assert asyncio.run(look(url, KeyRing.parse(key), kept))[1] == "one"


def test_a_terminal_that_can_not_show_a_name_gets_its_number(tmp_path: Path, url: str) -> None:
    env = environment(MOORINGS_DATABASE_URL=url, MOORINGS_ENCRYPTION_KEYS=new_key_entry(), PYTHONIOENCODING="latin-1")
    done = run(tmp_path, "forget", "api:\u2713", "--yes", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Nothing is stored of api:\\u2713" in done.stdout


def test_forget_a_person(tmp_path: Path, url: str) -> None:
    key = new_key_entry()
    lines = [("a", "slack:T1:U1", "mine"), ("b", "slack:T1:U1", "secret"), ("b", "slack:T1:U2", "hello")]
    [alone, shared] = asyncio.run(said(url, KeyRing.parse(key), *lines))
    asyncio.run(connected(url, KeyRing.parse(key), "slack:T1:U1", "slack:T1:U2", "slack:T1:U3"))
    env = environment(MOORINGS_DATABASE_URL=url, MOORINGS_ENCRYPTION_KEYS=key)
    said_ = refusal(run(tmp_path, "forget", "slack:T1:U1", env=env))
    assert "1 session of slack:T1:U1 alone would be deleted, and their words in 1 session with others" in said_
    assert ", and 1 vault entry of theirs." in said_
    done = run(tmp_path, "forget", "slack:T1:U1", "--yes", env=env)
    assert done.stdout.splitlines() == [
        "Forgotten of slack:T1:U1: 1 session as a whole, words in 1 session with others.",
        "  1 vault entry deleted",
        f"  {alone}: deleted",
        f"  {shared}: 1 stored values redacted",
        "  not told, as --app was not given: account/slack:T1:U1; end the access there, too",
    ]
    assert asyncio.run(look(url, KeyRing.parse(key), alone))[1] is None
    assert asyncio.run(look(url, KeyRing.parse(key), shared))[1] == "[message deleted]"
    again = run(tmp_path, "forget", "slack:T1:U1", "--yes", env=env).stdout
    assert "0 sessions as a whole, words in 0 sessions" in again
    only = run(tmp_path, "forget", "slack:T1:U3", "--yes", env=env).stdout
    assert only.splitlines()[1:2] == ["  1 vault entry deleted"], "who never wrote may have connected an account"
    assert asyncio.run(owners(url, KeyRing.parse(key))) == ["slack:T1:U2"]
    assert "Nothing is stored of slack:T1:U9" in run(tmp_path, "forget", "slack:T1:U9", "--yes", env=env).stdout


async def owners(url: str, keys: KeyRing) -> list[str]:
    """Say whose entries the vault has."""
    store = open_store(url, keys=keys, clock=DatabaseClock())
    await store.open()
    found = [one.owner for one in await store.vault_list(limit=100)]
    await store.close()
    return found


# on PostgreSQL


async def test_on_postgres_too(migrated_url: str) -> None:
    old, new = new_key_entry(), new_key_entry()
    lines = [("a", "slack:T1:U1", "mine"), ("b", "slack:T1:U1", "secret"), ("b", "slack:T1:U2", "hello")]
    [alone, shared] = await said(migrated_url, KeyRing.parse(old), *lines)
    await connected(migrated_url, KeyRing.parse(old), "slack:T1:U1", "slack:T1:U2")
    both = KeyRing.parse(f"{new},{old}")
    store = open_store(migrated_url, keys=both, clock=DatabaseClock())
    await store.open()
    done = await rewrap_all(store, batch=1)
    assert (done.changed, done.in_use) == (2, {new.partition(":")[0]: 2})
    found = await traces(store, "slack:T1:U1")
    assert (found.alone, found.shared) == ((alone,), (shared,))
    forgotten = await forget_principal(store, "slack:T1:U1", by="operator", seconds=0)
    assert (forgotten.sessions, forgotten.redacted, forgotten.entries) == ((alone,), {shared: 1}, 1)
    again = await forget_principal(store, "slack:T1:U1", by="operator", seconds=0)
    assert (again.sessions, again.redacted) == ((), {})
    await store.close()
    assert (await look(migrated_url, KeyRing.parse(new), alone))[1] is None
    assert (await look(migrated_url, KeyRing.parse(new), shared))[1] == "[message deleted]"


# vacuum


def test_vacuum(tmp_path: Path, url: str) -> None:
    env = environment(MOORINGS_DATABASE_URL=url)
    assert re.search(r"m\.db: [\d,]+ bytes before, [\d,]+ now\.", run(tmp_path, "vacuum", env=env).stdout)
    pg = environment(MOORINGS_DATABASE_URL="postgresql://u:p@localhost/x")
    assert "gives space back by itself" in refusal(run(tmp_path, "vacuum", env=pg))
