"""Errors of the durable core, one tree.

What lives here: every exception the core raises on purpose. What does not: platform or application errors.

DurableError
├── Unavailable            the database could not answer; try again
│   └── CommitUnknown      the commit's fate is not known; read before you retry
├── Broken                 the database answered wrongly; stop and say so
│   ├── FileMoved          the database's file is not at its path any more
│   ├── SchemaOutdated     the schema is not one that this code can work on
│   └── OlderWorkers       a migration has to wait until older workers have stopped
├── PromptTaken            a prompt that a commit wanted to settle was settled by another; load and decide anew
├── Redacted               content of the run was redacted since it was read; load and decide anew
├── AddressTaken           another open run owns an address that a commit wanted
├── LeaseLost              another worker owns the run now; stop, nothing was written
├── Conflict               the same idempotency key came with another payload
├── NotFound               no such run, prompt or submission
├── SessionEnded           the run is over; it takes no more input
├── ContentGone            the run's content was deleted: its retention is over, or it was forgotten
├── RunFailed              a workflow run whose result is waited for has failed
├── RunCancelled           a workflow run whose result is waited for was cancelled
├── Stranded               this code can't read what the run recorded
├── BadEventId             an event id whose position can't be read
│   ├── ForeignEvent       an event id of another run
│   └── EventMissing       an event id at whose position the reader has no event
├── Unstorable             a value that can't be stored, with its path
├── TooLarge               a value over the size limit
├── BadKeyRing             the key ring can't be parsed
│   └── NoKeys             there is no key at all
├── KeyMissing             the key a value was wrapped with is not in the ring
├── KeysNotGiven           the key provider gave no keys that can be used
└── CannotOpen             a sealed value doesn't open: wrong key or wrong place
    └── KeyWrong           a session's key doesn't open with the key of the ring that has the right id
"""

from __future__ import annotations

from typing import ClassVar


class DurableError(Exception):
    """Root of everything the core raises on purpose."""

    retryable: ClassVar[bool] = False


class Unavailable(DurableError):
    """The database could not answer; the same call may be made again."""

    retryable: ClassVar[bool] = True

    def __init__(self, reason: str) -> None:
        super().__init__(f"the database is unavailable: {reason}")
        self.reason = reason


class CommitUnknown(Unavailable):
    """A commit was sent and its fate is not known."""


class Broken(DurableError):
    """The database answered in a way that no retry mends."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class FileMoved(Broken):
    """The file that a process has open is not the one at its path any more: it was deleted, moved or replaced."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} was deleted, moved or replaced while this process had it open, so what it writes would be lost: nothing is"
            " written any more; put the file back as it was, or restart the process"
        )
        self.path = path


class SchemaOutdated(Broken):
    """The schema found is not one that this code can work on."""

    def __init__(self, found: str | None, wanted: str, *, cure: str = "run `moorings migrate`") -> None:
        state = f"is at {found}" if found else "has no Moorings tables"
        super().__init__(f"the database {state}, this version needs {wanted}; {cure}")
        self.found = found
        self.wanted = wanted


class OlderWorkers(Broken):
    """A migration has to wait until workers of an older version have stopped."""

    def __init__(self, revision: str, workers: tuple[str, ...]) -> None:
        super().__init__(
            f"{revision} can't be applied while older workers run: {', '.join(workers)}; stop them, then run it again"
        )
        self.revision = revision
        self.workers = workers


class LeaseLost(DurableError):
    """Another worker owns the run; nothing was written."""

    def __init__(self, run_id: str, epoch: int) -> None:
        super().__init__(f"lease of {run_id} (epoch {epoch}) is lost")
        self.run_id = run_id
        self.epoch = epoch


class PromptTaken(DurableError):
    """A prompt that a commit wanted to settle was settled by another; nothing was written."""

    def __init__(self, prompt_id: str) -> None:
        super().__init__(f"{prompt_id} was settled meanwhile")
        self.prompt_id = prompt_id


class RunChanged(DurableError):
    """A run is no longer as it was when its end was worded; nothing was written."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"{run_id} has changed meanwhile")
        self.run_id = run_id


class Redacted(DurableError):
    """Content of a run was redacted since whoever writes has read it; nothing was written."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"content of {run_id} was redacted meanwhile")
        self.run_id = run_id


class Conflict(DurableError):
    """One idempotency key, two payloads."""

    def __init__(self, source: str, key: str) -> None:
        super().__init__(f"key {key!r} of {source} was already used with another payload")
        self.source = source
        self.key = key


class NotFound(DurableError):
    """Nothing by that id."""

    def __init__(self, what: str, id_: str) -> None:
        super().__init__(f"no {what} {id_!r}")
        self.what = what
        self.id = id_


class SessionEnded(DurableError):
    """The run has ended and takes no more input."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"{run_id} has ended")
        self.run_id = run_id


class AddressTaken(DurableError):
    """Another open run owns an address that a commit wanted; nothing was written."""

    def __init__(self, channel: str, address: str) -> None:
        super().__init__(f"{address!r} of {channel} belongs to another open run")
        self.channel = channel
        self.address = address


class ContentGone(DurableError):
    """A run's content was deleted, by its retention or because it had to be forgotten; ids and times are left."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"the content of {run_id} has been deleted")
        self.run_id = run_id


class RunFailed(DurableError):
    """A workflow run has failed."""

    def __init__(self, run_id: str, code: str, message: str, type_name: str = "") -> None:
        super().__init__(f"{run_id} failed ({code}): {f'{type_name}: ' if type_name else ''}{message}")
        self.run_id = run_id
        self.code = code
        self.message = message
        self.type_name = type_name


class RunCancelled(DurableError):
    """A workflow run was cancelled."""

    def __init__(self, run_id: str, code: str, message: str) -> None:
        super().__init__(f"{run_id} was cancelled: {message}")
        self.run_id = run_id
        self.code = code
        self.message = message


class Stranded(DurableError):
    """This code can't read what the run recorded; `deployment` wrote it last, where that is known."""

    def __init__(self, run_id: str, spec_version: int, deployment: str = "") -> None:
        by = f" by {deployment}" if deployment else ""
        super().__init__(f"{run_id} was written{by} in format {spec_version}, which this code can't read")
        self.run_id = run_id
        self.spec_version = spec_version
        self.deployment = deployment


class BadEventId(DurableError):
    """An event id whose run and position can't be read."""

    def __init__(self, text: str) -> None:
        super().__init__(f"not an event id: {text[:80]!r}")
        self.text = text


class ForeignEvent(BadEventId):
    """An event id that names an event of another run."""

    def __init__(self, text: str, run_id: str) -> None:
        DurableError.__init__(self, f"{text} is no event of {run_id}")
        self.text = text
        self.run_id = run_id


class EventMissing(BadEventId):
    """An event id of this run at whose position there is no event, or none for this reader."""

    def __init__(self, text: str, run_id: str) -> None:
        DurableError.__init__(self, f"{run_id} has no event {text}")
        self.text = text
        self.run_id = run_id


class Unstorable(DurableError):
    """A value that can't be stored."""

    def __init__(self, path: str, type_name: str) -> None:
        super().__init__(f"can't store {type_name} at {path}; use JSON values, Decimal, datetime, date, UUID or bytes")
        self.path = path
        self.type_name = type_name


class TooLarge(DurableError):
    """A value over the size limit."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"{size} bytes is over the limit of {limit}")
        self.size = size
        self.limit = limit


class BadKeyRing(DurableError):
    """The key ring can't be parsed."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"MOORINGS_ENCRYPTION_KEYS: {reason}; `moorings keys new` prints a good entry")
        self.reason = reason


class NoKeys(BadKeyRing):
    """The key ring is empty."""

    def __init__(self) -> None:
        super().__init__("no encryption key is set")


class KeyMissing(DurableError):
    """The key that wrapped a value is not in the ring."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"encryption key {key_id!r} is not in MOORINGS_ENCRYPTION_KEYS; add it back to read this data")
        self.key_id = key_id


class CannotOpen(DurableError):
    """A sealed value doesn't open here."""

    def __init__(self, table: str, row: str, column: str) -> None:
        super().__init__(f"sealed value of {table}.{column} ({row}) doesn't open: wrong key, or moved from another place")
        self.table = table
        self.row = row
        self.column = column


class KeyWrong(CannotOpen):
    """The ring has a key of the right id, but it isn't the one that wrapped this session's key."""

    def __init__(self, key_id: str, session: str) -> None:
        super().__init__("session", session, "key")
        self.key_id = key_id

    def __str__(self) -> str:
        """Say it so that an operator knows which key to look for."""
        return f"encryption key {self.key_id!r} is not the one that {self.row} was written with; put the right one back"


class KeysNotGiven(DurableError):
    """A key provider failed, or gave what is no key."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the key provider gave no keys that can be used: {reason}")
        self.reason = reason
