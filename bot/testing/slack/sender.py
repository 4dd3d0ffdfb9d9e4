"""Posting to the app: signed, with three seconds for an answer, tried again as Slack does.

What lives here: signatures, attempts, the schedule of retries. What does not: what is posted (payloads.py).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Final, Literal
from urllib.parse import urlencode

import aiohttp

from bot.testing.slack.values import Json
from bot.testing.slack.world import World

ACK_SECONDS: Final = 3.0
RETRY_MS: Final = (0, 60_000, 300_000)
"""How long after a failure the next attempt comes; there are no more."""

Failure = Literal["http_timeout", "http_error", "connection_failed", "too_many_redirects"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try. `status` is None where no answer came; `failure` is the word of the next retry's header."""

    number: int
    status: int | None
    failure: Failure | None
    ms: float
    at: int
    body: bytes = b""
    lost: bool = False
    """It never reached the app."""

    @property
    def ok(self) -> bool:
        """Tell whether Slack takes it for delivered."""
        return self.failure is None


@dataclass(slots=True, eq=False)
class Posting:
    """One thing that Slack wants the app to know, and every try to tell it."""

    id: str
    body: bytes
    _: KW_ONLY
    content_type: str
    payload: Json
    retried: bool
    attempts: list[Attempt] = field(default_factory=list)
    retry_at: int | None = None
    """When the next attempt is due, in ms of the manual clock."""

    @property
    def ok(self) -> bool:
        """Tell whether the app took it."""
        return bool(self.attempts) and self.attempts[-1].ok

    @property
    def status(self) -> int | None:
        """The status of the last attempt's answer."""
        return self.attempts[-1].status if self.attempts else None


@dataclass(frozen=True, slots=True)
class Said:
    """What somebody wrote, and how the app was told of it."""

    channel: str
    ts: str
    _: KW_ONLY
    thread: str
    """The `ts` of the thread it is in, or begins."""
    postings: tuple[Posting, ...] = ()


class Sender:
    """Posts to one app. Its signatures carry `wall()`, since the app compares them with its own clock."""

    def __init__(self, world: World, *, secret: str, wall: Callable[[], int], ack_seconds: float) -> None:
        self._world = world
        self._secret = secret
        self._wall = wall
        self._ack_seconds = ack_seconds
        self._session: aiohttp.ClientSession | None = None
        self._background: set[asyncio.Task[None]] = set()
        self.url = ""
        self.postings: list[Posting] = []

    async def start(self) -> None:
        """Be ready to post."""
        self._session = aiohttp.ClientSession(auto_decompress=True)

    async def stop(self) -> None:
        """Post no more."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    def sign(self, body: bytes) -> dict[str, str]:
        """Return the headers that prove these bytes."""
        timestamp = str(self._wall() // 1000)
        digest = hmac.new(self._secret.encode(), b"v0:" + timestamp.encode() + b":" + body, hashlib.sha256)
        return {"X-Slack-Request-Timestamp": timestamp, "X-Slack-Signature": f"v0={digest.hexdigest()}"}

    async def post(self, posting: Posting, *, lose_first: bool = False) -> Posting:
        """Post, and at once a second time if that failed; what is left is due later."""
        self.postings.append(posting)
        if lose_first:
            attempt = Attempt(number=0, status=None, failure="connection_failed", ms=0.0, at=self._world.clock.now_ms, lost=True)
            self._record(posting, attempt, wants_retry=True)
        else:
            await self._try(posting)
        while posting.retry_at is not None and posting.retry_at <= self._world.clock.now_ms:
            await self._try(posting)
        return posting

    def post_soon(self, posting: Posting) -> None:
        """Post without waiting for it."""
        task = asyncio.create_task(self._post_quietly(posting))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _post_quietly(self, posting: Posting) -> None:
        await self.post(posting)

    async def settled(self) -> None:
        """Wait until nothing is being posted in the background."""
        while self._background:
            await asyncio.gather(*self._background)

    async def advance(self, by: timedelta) -> None:
        """Move the clock forward, and post what comes due on the way."""
        clock = self._world.clock
        end = clock.now_ms + int(by / timedelta(milliseconds=1))
        while (due := self._next_due(end)) is not None:
            if due.retry_at is not None and due.retry_at > clock.now_ms:
                clock.advance(timedelta(milliseconds=due.retry_at - clock.now_ms))
            await self._try(due)
        clock.advance(timedelta(milliseconds=end - clock.now_ms))
        self._world.changes.tell()

    def _next_due(self, end: int) -> Posting | None:
        waiting = [(one.retry_at, number) for number, one in enumerate(self.postings) if one.retry_at is not None]
        at, number = min(waiting, default=(end + 1, -1))
        return self.postings[number] if at <= end else None

    async def _try(self, posting: Posting) -> None:
        if self._session is None or not self.url:
            raise RuntimeError("nothing to post to: enter the fake, and run the bot or set events_url")
        number = len(posting.attempts)
        headers = {
            "Content-Type": posting.content_type,
            "Accept": "*/*",
            "User-Agent": "Slackbot 1.0 (+https://api.slack.com/robots)",
            **self.sign(posting.body),
        }
        if number:
            headers |= {"X-Slack-Retry-Num": str(number), "X-Slack-Retry-Reason": posting.attempts[-1].failure or "unknown_error"}
        status, failure, body, wants_retry = None, None, b"", True
        posting.retry_at = None
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._ack_seconds):
                async with self._session.post(self.url, data=posting.body, headers=headers, allow_redirects=False) as answer:
                    status, body = answer.status, await answer.read()
                    wants_retry = answer.headers.get("X-Slack-No-Retry") != "1"
            failure = _judge(status)
        except TimeoutError:
            failure = "http_timeout"
        except aiohttp.ClientError:
            failure = "connection_failed"
        attempt = Attempt(
            number=number,
            status=status,
            failure=failure,
            ms=(time.perf_counter() - began) * 1000,
            at=self._world.clock.now_ms,
            body=body,
        )
        self._record(posting, attempt, wants_retry=wants_retry)

    def _record(self, posting: Posting, attempt: Attempt, *, wants_retry: bool) -> None:
        posting.attempts.append(attempt)
        again = posting.retried and not attempt.ok and wants_retry and attempt.number < len(RETRY_MS)
        posting.retry_at = self._world.clock.now_ms + RETRY_MS[attempt.number] if again else None
        self._world.changes.tell()


def _judge(status: int) -> Failure | None:
    if 200 <= status < 300:
        return None
    return "too_many_redirects" if 300 <= status < 400 else "http_error"


def as_json(key: str, payload: Json, *, retried: bool) -> Posting:
    """Make a posting of JSON."""
    body = json.dumps(payload, separators=(",", ":")).encode()
    return Posting(key, body, content_type="application/json", payload=payload, retried=retried)


def as_form(key: str, form: Mapping[str, str], payload: Json) -> Posting:
    """Make a posting of a form; Slack posts interactions and commands so, and never again."""
    body = urlencode(form).encode()
    return Posting(key, body, content_type="application/x-www-form-urlencoded", payload=payload, retried=False)
