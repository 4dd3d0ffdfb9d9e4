"""Not asking too often: what Slack allows in a while, counted here before it has to refuse.

What lives here: buckets of calls, and waits that Slack asked for. What does not: the waiting itself.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from channels.errors import RateLimited
from channels.signing import NowMs

MAX_BUCKETS = 10_000


@dataclass(frozen=True, slots=True)
class Rate:
    """So many calls at once, and so many a minute on."""

    burst: int
    per_minute: float


# https://docs.slack.dev/apis/web-api/rate-limits: tiers per method and workspace; posting about once a second per channel.
POSTING = Rate(burst=4, per_minute=60)
TIER_2 = Rate(burst=5, per_minute=20)
TIER_3 = Rate(burst=10, per_minute=50)
TIER_4 = Rate(burst=20, per_minute=100)

RATES: dict[str, Rate] = {
    "chat.postMessage": POSTING,
    "chat.postEphemeral": TIER_4,
    "chat.update": TIER_3,
    "chat.getPermalink": TIER_3,
    "conversations.replies": TIER_3,
    "conversations.history": TIER_3,
    "conversations.info": TIER_3,
    "usergroups.users.list": TIER_2,
    "conversations.open": TIER_3,
    "users.info": TIER_4,
    "views.open": TIER_4,
}
BY_CHANNEL = frozenset({"chat.postMessage"})


@dataclass(slots=True)
class _Bucket:
    left: float
    at: int
    closed_until: int = 0


@dataclass(slots=True)
class Pacer:
    """Counts calls per method, and for posts per channel."""

    now: NowMs
    _buckets: OrderedDict[tuple[str, str], _Bucket] = field(default_factory=OrderedDict)

    def take(self, method: str, channel: str = "") -> None:
        """Count a call. Raises: RateLimited if it has to wait; it is not counted then."""
        self.book(method, channel, most=0)

    def book(self, method: str, channel: str = "", *, most: float) -> float:
        """Count a call and return in how many seconds its turn is.

        Raises: RateLimited if that is more than `most`, or while Slack's own wait lasts; it is not counted then.
        """
        rate = RATES.get(method)
        self.check(method, channel)
        bucket, now = self._bucket(method, channel), self.now()
        if rate is None:
            return 0.0
        per_ms = rate.per_minute / 60_000
        bucket.left = min(float(rate.burst), bucket.left + max(0, now - bucket.at) * per_ms)
        bucket.at = now
        wait = max(0.0, 1 - bucket.left) / per_ms / 1000
        if wait > most:
            raise RateLimited(wait)
        bucket.left -= 1
        return wait

    def check(self, method: str, channel: str = "") -> None:
        """Let a call through that was counted before. Raises: RateLimited while Slack's own wait lasts."""
        wait = self._bucket(method, channel).closed_until - self.now()
        if wait > 0:
            raise RateLimited(wait / 1000)

    def close(self, method: str, channel: str, *, seconds: float) -> None:
        """Let nothing through until Slack's wait is over."""
        self._bucket(method, channel).closed_until = self.now() + int(seconds * 1000)

    def _bucket(self, method: str, channel: str) -> _Bucket:
        key = (method, channel if method in BY_CHANNEL else "")
        bucket = self._buckets.get(key)
        if bucket is None:
            rate = RATES.get(method)
            bucket = self._buckets[key] = _Bucket(float(rate.burst) if rate else 0.0, self.now())
            if len(self._buckets) > MAX_BUCKETS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(key)
        return bucket
