"""Retry: how long to wait before trying again, and when to stop.

What lives here: the policy, as numbers. What does not: who keeps the count, which is a column or a loop elsewhere.
"""

from __future__ import annotations

import asyncio
import math
import random as _random
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_exponential

from durable_core.clock import milliseconds
from durable_core.errors import CommitUnknown, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

MAX_RETRY_AFTER: Final = timedelta(days=1)
"""The longest a platform's Retry-After is believed: a mad one must not close a lane for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Wait `first`, then twice as long each time up to `cap`, each shortened at random by up to the share `jitter`."""

    attempts: int = 4
    first: timedelta = timedelta(milliseconds=500)
    cap: timedelta = timedelta(seconds=60)
    jitter: float = 0.25

    def __post_init__(self) -> None:
        if self.attempts < 1 or not timedelta(0) <= self.first <= self.cap or not 0 <= self.jitter <= 1:
            raise ValueError(f"not a usable policy: {self}")

    def delay_ms(self, attempt: int, *, retry_after: float | None = None, random: Callable[[], float] = _random.random) -> int:
        """Return how many milliseconds to wait after `attempt` (counted from 1) failed.

        Args:
            attempt: the number of attempts that failed so far.
            retry_after: seconds the other side asked for; never shortened, and spread upwards by `jitter`.
            random: a source of numbers in [0, 1).
        """
        state = RetryCallState(AsyncRetrying(), None, (), {})
        state.attempt_number = max(1, attempt)
        backoff = wait_exponential(multiplier=self.first.total_seconds(), max=self.cap.total_seconds())(state)
        spread = self.jitter * random()
        seconds = backoff * (1 - spread)
        if retry_after is not None and not math.isnan(retry_after):
            seconds = max(seconds, min(retry_after, MAX_RETRY_AFTER.total_seconds()) * (1 + spread))
        return milliseconds(timedelta(seconds=seconds))

    def exhausted(self, charged: int) -> bool:
        """Return whether `charged` failed attempts are all there are."""
        return charged >= self.attempts


DATABASE_RETRY: Final = RetryPolicy(attempts=5, first=timedelta(milliseconds=50), cap=timedelta(seconds=2), jitter=0.5)
"""For a call to the database inside one request or step; what lasts longer is the caller's to park."""

HELD_RETRY: Final = RetryPolicy(attempts=50, first=timedelta(milliseconds=50), cap=timedelta(seconds=2), jitter=0.5)
"""For what a held run has done and not yet written down: about as long as its lease lasts, or a failover takes."""


def retrying_unavailable(
    policy: RetryPolicy = DATABASE_RETRY,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncRetrying:
    """Return a tenacity loop that repeats a call on `Unavailable` and raises the last one as it came.

    `CommitUnknown` is not repeated: what was sent may be durable, so its caller reads before it writes again.
    """
    return AsyncRetrying(
        sleep=sleep,
        retry=retry_if_exception(lambda error: isinstance(error, Unavailable) and not isinstance(error, CommitUnknown)),
        stop=stop_after_attempt(policy.attempts),
        wait=lambda state: policy.delay_ms(state.attempt_number) / 1000,
        reraise=True,
    )


async def surely(call: Callable[[], Awaitable[T]], *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> T:
    """Write down what was done, as soon as the database is there: what was done is not to be done again since that was away.

    Raises:
        Unavailable: it stays away; nothing is written.
        CommitUnknown: read before you write again.
    """
    try:
        return await call()
    except CommitUnknown:
        raise
    except Unavailable:
        async for attempt in retrying_unavailable(HELD_RETRY, sleep=sleep):
            with attempt:
                return await call()
        raise
