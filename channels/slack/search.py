"""Finding a message again by the delivery id in its metadata.

What lives here: what to read, in which order, and how much at most. What does not: posting.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from channels.slack.address import SlackAddress
from channels.slack.api import Api
from channels.slack.reading import Fields, fields_of, items_of, text_of

EVENT_TYPE = "moorings_delivery"

PAGE = 200
MAX_PAGES = 20
_DAY = 24 * 3_600
_LATELY = 15 * 60


def metadata(delivery_id: str) -> dict[str, object]:
    """Return the metadata that names a delivery."""
    return {"event_type": EVENT_TYPE, "event_payload": {"delivery_id": delivery_id}}


@dataclass(frozen=True, slots=True)
class Search:
    """Looks through a thread, the last minutes first, then the last day, then all of it, up to 4,000 messages in all.

    A message beyond that is not found: it would be posted again.
    """

    api: Api
    bot_user: str
    now_seconds: int

    async def find(self, address: SlackAddress, delivery_id: str) -> str | None:
        """Return the ts of our message with that delivery id. Raises: DeliveryFailed, RateLimited."""
        pages = MAX_PAGES
        until = ""
        for oldest in self._windows(address):
            async for page in self._pages(address, oldest, until):
                for message in reversed(page):
                    if self._is(message, delivery_id):
                        return text_of(message, "ts")
                pages -= 1
                if pages <= 0:
                    return None
            until = oldest
        return None

    def _windows(self, address: SlackAddress) -> list[str]:
        """List the beginnings of the windows, newest first; a thread begins with its root."""
        root = address.thread or "0"
        recent = [f"{self.now_seconds - back}.000000" for back in (_LATELY, _DAY)]
        return [*(oldest for oldest in recent if int(oldest.partition(".")[0]) > int(root.partition(".")[0])), root]

    async def _pages(self, address: SlackAddress, oldest: str, latest: str) -> AsyncIterator[list[Fields]]:
        query: dict[str, object] = {
            "channel": address.channel,
            "include_all_metadata": "true",
            "inclusive": "true",
            "limit": PAGE,
            "oldest": oldest,
        }
        if latest:
            query["latest"] = latest
        if address.thread:
            query["ts"] = address.thread
        method = "conversations.replies" if address.thread else "conversations.history"
        while True:
            answer = await self.api.get(method, query)
            yield [fields_of(item) for item in items_of(answer.get("messages"))]
            cursor = text_of(fields_of(answer.get("response_metadata")), "next_cursor")
            if not cursor or not answer.get("has_more", True):
                return
            query["cursor"] = cursor

    def _is(self, message: Fields, delivery_id: str) -> bool:
        found = fields_of(message.get("metadata"))
        if text_of(found, "event_type") != EVENT_TYPE or text_of(message, "user") != self.bot_user:
            return False
        return text_of(fields_of(found.get("event_payload")), "delivery_id") == delivery_id
