"""The console platform's SQL, one function for each thing it does.

What lives here: rows in and out, within a transaction of the caller's. What does not: transactions, checks of who may do what.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from typing import Any

from channels.console.cast import CastMember
from channels.console.records import ConsoleRefused, PendingEvent, ShownMessage, Thread
from channels.outbound import Outbound
from channels.strict import Json

MAX_TITLE = 60

_Row = tuple[Any, ...]

_THREAD_COLUMNS = """
    SELECT id, title, channel, shared_outside, created_at, version,
           (SELECT max(at) FROM message WHERE thread_id = thread.id AND private_to IS NULL) FROM thread
"""
_THREAD = f"{_THREAD_COLUMNS} WHERE id = ?"
_THREADS = f"{_THREAD_COLUMNS} ORDER BY version DESC"
_MESSAGE = """
    SELECT id, thread_id, seq, author, text, card, notice, at, edited_at, version, private_to FROM message WHERE id = ?
"""
_MESSAGES = """
    SELECT id, thread_id, seq, author, text, card, notice, at, edited_at, version, private_to
    FROM message WHERE thread_id = ? AND version > ? ORDER BY seq
"""


def platform_id(db: sqlite3.Connection) -> str:
    """Return the platform's own id."""
    return str(db.execute("SELECT value FROM meta WHERE name = 'platform'").fetchone()[0])


def secret(db: sqlite3.Connection) -> bytes:
    """Return the signing secret."""
    return bytes(db.execute("SELECT value FROM meta WHERE name = 'secret'").fetchone()[0])


def version(db: sqlite3.Connection) -> int:
    """Return the count of changes."""
    return int(db.execute("SELECT version FROM counter").fetchone()[0])


def _next_version(db: sqlite3.Connection) -> int:
    db.execute("UPDATE counter SET version = version + 1")
    return version(db)


def add_thread(db: sqlite3.Connection, new: Thread) -> Thread:
    """Add a thread without messages; returns it with its version. One that is there already stays as it is."""
    if db.execute("SELECT 1 FROM thread WHERE id = ?", (new.id,)).fetchone() is not None:
        return thread(db, new.id)
    row = (new.id, _title(new.title), new.channel, int(new.shared_outside), new.created_at, 0, _next_version(db))
    db.execute("INSERT INTO thread VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    return thread(db, new.id)


def threads(db: sqlite3.Connection) -> list[Thread]:
    """Return all threads, the one that changed last first."""
    return [_to_thread(row) for row in db.execute(_THREADS)]


def thread(db: sqlite3.Connection, thread_id: str) -> Thread:
    """Return one thread. Raises: ConsoleRefused("unknown_thread")."""
    row = db.execute(_THREAD, (thread_id,)).fetchone()
    if row is None:
        raise ConsoleRefused("unknown_thread")
    return _to_thread(row)


def message(db: sqlite3.Connection, message_id: str) -> ShownMessage:
    """Return one message. Raises: ConsoleRefused("unknown_message")."""
    row = db.execute(_MESSAGE, (message_id,)).fetchone()
    if row is None:
        raise ConsoleRefused("unknown_message")
    return _to_message(row)


def messages(db: sqlite3.Connection, thread_id: str, *, since_version: int) -> list[ShownMessage]:
    """Return what changed in a thread after a version, in the thread's order."""
    return [_to_message(row) for row in db.execute(_MESSAGES, (thread_id, since_version))]


def add_message(db: sqlite3.Connection, thread_: Thread, *, author: str, shown: Outbound, now: int) -> str:
    """Add a message at the thread's end; the first one that all may see names a thread without a title."""
    changed = _next_version(db)
    title = thread_.title
    if not title and shown.private_to is None:
        title = _title(shown.text or (shown.card.question if shown.card else ""))
    query = "UPDATE thread SET last_seq = last_seq + 1, version = ?, title = ? WHERE id = ? RETURNING last_seq"
    seq = db.execute(query, (changed, title, thread_.id)).fetchone()[0]
    message_id = f"msg_{secrets.token_hex(10)}"
    card = dump(shown.card.to_json()) if shown.card else None
    row = (message_id, thread_.id, seq, author, shown.text, card, int(shown.notice), now, None, changed, shown.private_to)
    db.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    _remember_buttons(db, message_id, shown=shown)
    return message_id


def replace_message(db: sqlite3.Connection, before: ShownMessage, *, shown: Outbound, now: int) -> None:
    """Replace all that a message shows; the same content again changes nothing."""
    card = shown.card.to_json() if shown.card else None
    if (before.text, before.card, before.notice) == (shown.text, card, shown.notice):
        return
    changed = _next_version(db)
    query = "UPDATE message SET text = ?, card = ?, notice = ?, edited_at = ?, version = ? WHERE id = ?"
    stored = dump(card) if card else None
    db.execute(query, (shown.text, stored, int(shown.notice), now, changed, before.id))
    db.execute("UPDATE thread SET version = ? WHERE id = ?", (changed, before.thread_id))
    _remember_buttons(db, before.id, shown=shown)


def _remember_buttons(db: sqlite3.Connection, message_id: str, *, shown: Outbound) -> None:
    if shown.card is not None:
        buttons = [button for one in (shown.card, *shown.card.items) for button in one.buttons]
        values = [(message_id, button.form.value if button.form else button.value) for button in buttons]
        db.executemany("INSERT INTO button (message_id, value) VALUES (?, ?) ON CONFLICT DO NOTHING", values)


def ever_showed(db: sqlite3.Connection, message_id: str, *, value: str) -> bool:
    """Tell whether a message has, or once had, a button or a form of this value."""
    return db.execute("SELECT 1 FROM button WHERE message_id = ? AND value = ?", (message_id, value)).fetchone() is not None


def add_delivery(db: sqlite3.Connection, delivery_id: str, *, message_id: str) -> None:
    """Remember which message a delivery became; the first time counts."""
    query = "INSERT INTO delivery (id, message_id) VALUES (?, ?) ON CONFLICT DO NOTHING"
    db.execute(query, (delivery_id, message_id))


def delivered_as(db: sqlite3.Connection, delivery_id: str) -> ShownMessage | None:
    """Return the message that a delivery became, or None."""
    row = db.execute("SELECT message_id FROM delivery WHERE id = ?", (delivery_id,)).fetchone()
    return None if row is None else message(db, row[0])


def event_body(db: sqlite3.Connection, kind: str, *, thread_: Thread, author: CastMember, more: Json) -> bytes:
    """Return the bytes that tell the bot about something a person did."""
    return dump(
        {
            "type": kind,
            "id": f"evt_{secrets.token_hex(10)}",
            "platform": platform_id(db),
            "thread": {
                "id": thread_.id,
                "title": thread_.title,
                "channel": thread_.channel,
                "shared_outside": thread_.shared_outside,
            },
            "author": {
                "id": author.id,
                "name": author.name,
                "standing": author.standing.value,
                "roles": sorted(author.roles),
            },
            **more,
        }
    ).encode()


def new_event(body: bytes, now: int) -> PendingEvent:
    """Return the event of this body, not yet delivered."""
    read = json.loads(body)
    return PendingEvent(str(read["id"]), body, at=now, delivered=False, thread_id=str(read["thread"]["id"]))


def add_event(db: sqlite3.Connection, event: PendingEvent, *, client_key: str, fingerprint: str, message_id: str) -> PendingEvent:
    """Note an event that the bot has not taken yet."""
    query = """
        INSERT INTO event (id, client_key, fingerprint, message_id, body, at, delivered) VALUES (?, ?, ?, ?, ?, ?, 0)
    """
    db.execute(query, (event.id, client_key, fingerprint, message_id, event.body, event.at))
    return event


def earlier_event(db: sqlite3.Connection, client_key: str, *, fingerprint: str) -> tuple[PendingEvent, str] | None:
    """Return what this client id did before and its message, or None. Raises: ConsoleRefused("client_id_reused")."""
    query = "SELECT id, body, at, delivered, message_id, fingerprint FROM event WHERE client_key = ?"
    row = db.execute(query, (client_key,)).fetchone()
    if row is None:
        return None
    if row[5] != fingerprint:
        raise ConsoleRefused("client_id_reused")
    return _to_event(row[:4]), str(row[4])


def undelivered(db: sqlite3.Connection) -> list[PendingEvent]:
    """Return the events that the bot has not taken yet, in their order."""
    query = "SELECT id, body, at, delivered FROM event WHERE delivered = 0 ORDER BY number"
    return [_to_event(row) for row in db.execute(query)]


def mark_delivered(db: sqlite3.Connection, event_id: str) -> None:
    """Note that the bot has taken an event."""
    db.execute("UPDATE event SET delivered = 1 WHERE id = ?", (event_id,))


def dump(data: Json) -> str:
    """Return compact JSON, equal for equal data."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _title(text: str) -> str:
    return " ".join(text.split())[:MAX_TITLE].rstrip()


def _to_thread(row: _Row) -> Thread:
    return Thread(
        row[0],
        row[1],
        channel=row[2],
        shared_outside=bool(row[3]),
        created_at=row[4],
        version=row[5],
        last_at=row[6] if row[6] is not None else row[4],
    )


def _to_event(row: _Row) -> PendingEvent:
    thread_id = str(json.loads(row[1])["thread"]["id"])
    return PendingEvent(row[0], bytes(row[1]), at=row[2], delivered=bool(row[3]), thread_id=thread_id)


def _to_message(row: _Row) -> ShownMessage:
    return ShownMessage(
        row[0],
        row[1],
        seq=row[2],
        author=row[3],
        text=row[4],
        card=json.loads(row[5]) if row[5] else None,
        notice=bool(row[6]),
        at=row[7],
        edited_at=row[8],
        version=row[9],
        private_to=row[10],
    )
