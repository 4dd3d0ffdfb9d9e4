"""Grants, tokens and issues of the demo's provider, in a SQLite file: a restart loses nothing.

What lives here: what may be granted, exchanged, renewed, revoked and opened. What does not: HTTP (routes.py), the page (page.py).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Final

CODE_SECONDS: Final = 60
ACCESS_SECONDS: Final = 300
REFRESH_SECONDS: Final = 30 * 24 * 3600

_CREATE: Final = """
CREATE TABLE IF NOT EXISTS secret (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS account_grant (
    number INTEGER PRIMARY KEY,
    email TEXT NOT NULL,
    name TEXT NOT NULL,
    verified INTEGER NOT NULL,
    scope TEXT NOT NULL,
    redirect_uri TEXT NOT NULL,
    challenge TEXT NOT NULL,
    code_digest BLOB NOT NULL UNIQUE,
    code_until REAL NOT NULL,
    code_used INTEGER NOT NULL DEFAULT 0,
    revoked INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS token (
    digest BLOB PRIMARY KEY,
    grant_number INTEGER NOT NULL REFERENCES account_grant (number),
    kind TEXT NOT NULL,
    until REAL NOT NULL,
    used INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS issue (
    number INTEGER PRIMARY KEY,
    email TEXT NOT NULL,
    name TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    title TEXT NOT NULL,
    UNIQUE (email, idempotency_key)
);
"""


class GrantRefused(Exception):
    """A token request that gets an OAuth error, RFC 6749 section 5.2."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(f"{error}: {description}")
        self.error = error
        self.description = description


class KeyReused(Exception):
    """The idempotency key belongs to another issue."""

    def __init__(self) -> None:
        super().__init__("this idempotency key was used for another issue")


@dataclass(frozen=True, slots=True)
class Person:
    """Who is signed in here; an address that was only typed is not verified."""

    email: str
    name: str
    _: KW_ONLY
    verified: bool


@dataclass(frozen=True, slots=True)
class Issued:
    """What a token request is answered with."""

    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    _: KW_ONLY
    expires_in: int
    scope: str


@dataclass(frozen=True, slots=True)
class Bearer:
    """Whom an access token speaks for, and what it may do."""

    person: Person
    scopes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Issue:
    """One issue of the tracker."""

    number: int
    title: str
    _: KW_ONLY
    author: str
    author_email: str


class Accounts:
    """The provider's file. Codes and tokens are kept as hashes; every change is one transaction that reached the disk."""

    def __init__(self, path: Path | None = None, *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._lock = threading.Lock()
        if path is not None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._database = sqlite3.connect(path or ":memory:", check_same_thread=False, timeout=30, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.executescript(_CREATE)
        self._database.execute("INSERT OR IGNORE INTO secret VALUES ('form', ?)", (secrets.token_bytes(32),))
        [(self.form_key,)] = self._database.execute("SELECT value FROM secret WHERE name = 'form'")

    def close(self) -> None:
        """Close the file; a call still running in its thread ends first."""
        with self._lock:
            self._database.close()

    async def grant(self, person: Person, *, scope: str, redirect_uri: str, challenge: str) -> str:
        """Write down that somebody agreed, and return the code."""
        return await asyncio.to_thread(self._grant, person, scope, redirect_uri, challenge)

    async def exchange(self, code: str, *, verifier: str, redirect_uri: str) -> Issued:
        """Exchange a code, once; a second time revokes what came of the first. Raises: GrantRefused."""
        return await asyncio.to_thread(self._exchange, code, verifier, redirect_uri)

    async def refresh(self, token: str) -> Issued:
        """Renew, with a new refresh token; the old one used again revokes the whole grant. Raises: GrantRefused."""
        return await asyncio.to_thread(self._refresh, token)

    async def bearer(self, token: str) -> Bearer | None:
        """Say whom an access token speaks for; None once it is over or revoked."""
        return await asyncio.to_thread(self._bearer, token)

    async def revoke(self, token: str) -> None:
        """End the grant of an access or refresh token; one that isn't known is fine (RFC 7009)."""
        await asyncio.to_thread(self._revoke, token)

    async def revoke_all(self, email: str) -> int:
        """End all grants of an account, and say how many there were."""
        return await asyncio.to_thread(self._revoke_all, email)

    async def open_issue(self, person: Person, title: str, *, key: str) -> Issue:
        """Open an issue, once per key of a person. Raises: KeyReused."""
        return await asyncio.to_thread(self._open_issue, person, title, key)

    async def issues(self) -> list[Issue]:
        """List every issue, oldest first."""
        return await asyncio.to_thread(self._issues)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    def _grant(self, person: Person, scope: str, redirect_uri: str, challenge: str) -> str:
        code = secrets.token_urlsafe(32)
        with self._transaction() as database:
            database.execute(
                "INSERT INTO account_grant (email, name, verified, scope, redirect_uri, challenge, code_digest, code_until) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    person.email,
                    person.name,
                    person.verified,
                    scope,
                    redirect_uri,
                    challenge,
                    _digest(code),
                    self._now() + CODE_SECONDS,
                ),
            )
        return code

    def _exchange(self, code: str, verifier: str, redirect_uri: str) -> Issued:
        used = False
        with self._transaction() as database:
            row = database.execute(
                "SELECT number, scope, redirect_uri, challenge, code_until, code_used, revoked FROM account_grant "
                "WHERE code_digest = ?",
                (_digest(code),),
            ).fetchone()
            if row is None:
                raise GrantRefused("invalid_grant", "there is no such code")
            number, scope, wanted_uri, challenge, until, used, revoked = row
            if used:
                database.execute("UPDATE account_grant SET revoked = 1 WHERE number = ?", (number,))
            else:
                if revoked or self._now() >= until:
                    raise GrantRefused("invalid_grant", "the code is over")
                if redirect_uri != wanted_uri:
                    raise GrantRefused("invalid_grant", "the redirect URI is not that of the authorization")
                if not hmac.compare_digest(challenge_of(verifier), challenge):
                    raise GrantRefused("invalid_grant", "the code verifier does not fit")
                database.execute("UPDATE account_grant SET code_used = 1 WHERE number = ?", (number,))
                return self._issue_pair(database, number, scope)
        raise GrantRefused("invalid_grant", "the code was used before, so what came of it is revoked")

    def _refresh(self, token: str) -> Issued:
        with self._transaction() as database:
            row = database.execute(
                "SELECT t.used, t.until, g.number, g.scope, g.revoked FROM token t "
                "JOIN account_grant g ON g.number = t.grant_number WHERE t.digest = ? AND t.kind = 'refresh'",
                (_digest(token),),
            ).fetchone()
            if row is None:
                raise GrantRefused("invalid_grant", "there is no such refresh token")
            used, until, number, scope, revoked = row
            if not used:
                if revoked or self._now() >= until:
                    raise GrantRefused("invalid_grant", "the grant is over")
                database.execute("UPDATE token SET used = 1 WHERE digest = ?", (_digest(token),))
                return self._issue_pair(database, number, scope)
            database.execute("UPDATE account_grant SET revoked = 1 WHERE number = ?", (number,))
        raise GrantRefused("invalid_grant", "the refresh token was used before, so the grant is revoked")

    def _issue_pair(self, database: sqlite3.Connection, number: int, scope: str) -> Issued:
        access, renewal = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        now = self._now()
        database.executemany(
            "INSERT INTO token (digest, grant_number, kind, until) VALUES (?, ?, ?, ?)",
            [
                (_digest(access), number, "access", now + ACCESS_SECONDS),
                (_digest(renewal), number, "refresh", now + REFRESH_SECONDS),
            ],
        )
        return Issued(access, renewal, expires_in=ACCESS_SECONDS, scope=scope)

    def _bearer(self, token: str) -> Bearer | None:
        with self._lock:
            row = self._database.execute(
                "SELECT g.email, g.name, g.verified, g.scope FROM token t JOIN account_grant g ON g.number = t.grant_number "
                "WHERE t.digest = ? AND t.kind = 'access' AND t.until > ? AND NOT g.revoked",
                (_digest(token), self._now()),
            ).fetchone()
        if row is None:
            return None
        email, name, verified, scope = row
        return Bearer(Person(email, name, verified=bool(verified)), frozenset(scope.split()))

    def _revoke(self, token: str) -> None:
        with self._transaction() as database:
            database.execute(
                "UPDATE account_grant SET revoked = 1 WHERE number = (SELECT grant_number FROM token WHERE digest = ?)",
                (_digest(token),),
            )

    def _revoke_all(self, email: str) -> int:
        with self._transaction() as database:
            done = database.execute(
                "UPDATE account_grant SET revoked = 1 WHERE email = ? AND code_used AND NOT revoked", (email,)
            )
            return done.rowcount

    def _open_issue(self, person: Person, title: str, key: str) -> Issue:
        with self._transaction() as database:
            database.execute(
                "INSERT INTO issue (email, name, idempotency_key, title) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (email, idempotency_key) DO NOTHING",
                (person.email, person.name, key, title),
            )
            found = _issue(database.execute(f"{_ISSUES} WHERE email = ? AND idempotency_key = ?", (person.email, key)).fetchone())
        if found.title != title:
            raise KeyReused
        return found

    def _issues(self) -> list[Issue]:
        with self._lock:
            return [_issue(row) for row in self._database.execute(f"{_ISSUES} ORDER BY number")]


_ISSUES: Final = "SELECT number, title, name, email FROM issue"


def _issue(row: tuple[int, str, str, str]) -> Issue:
    number, title, name, email = row
    return Issue(number, title, author=name, author_email=email)


def challenge_of(verifier: str) -> str:
    """Derive the S256 challenge of a verifier, RFC 7636."""
    digest = hashlib.sha256(verifier.encode("utf-8", "replace")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
