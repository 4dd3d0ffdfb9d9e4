"""The files of messages: uploaded before the message is shown, shared in its thread once it is.

What lives here: which files of which delivery are up or shared. What does not: drawing, posting, or the calls (`api.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from channels.errors import DeliveryFailed, RateLimited
from channels.outbound import Delivery
from channels.slack.api import UNCLEAR, Api
from channels.slack.render import File

log = logging.getLogger("moorings.slack")

_K = TypeVar("_K")
_T = TypeVar("_T")

UPLOAD_SECONDS = 6.0
UPLOAD_ATTEMPTS = 3
"""How often a failing upload holds its message up; the last one goes without."""

MAX_REMEMBERED = 1_000
# Slack says of the latter two that some of the call may have been done.
MAYBE_DONE = frozenset({UNCLEAR, "internal_error", "fatal_error"})


def bounded(held: OrderedDict[_K, _T], key: _K, value: _T) -> None:
    """Remember a value among the newest thousand."""
    held[key] = value
    held.move_to_end(key)
    if len(held) > MAX_REMEMBERED:
        held.popitem(last=False)


@dataclass(slots=True)
class Uploads:
    """Uploads and shares, each once per delivery as far as this process remembers."""

    calls: Callable[[], Api]
    _uploaded: OrderedDict[str, dict[str, str]] = field(default_factory=OrderedDict)
    _shared: OrderedDict[str, None] = field(default_factory=OrderedDict)

    async def put_up(self, delivery: Delivery, files: tuple[File, ...]) -> bool:
        """Upload files, unseen as yet. Returns whether they can be shared: not if Slack takes none or takes too long.

        Raises: DeliveryFailed, RateLimited; they are tried again.
        """
        if not files or delivery.id in self._shared:
            return True
        done = self._uploaded.get(delivery.id, {})
        bounded(self._uploaded, delivery.id, done)
        try:
            async with asyncio.timeout(UPLOAD_SECONDS):
                for file in files:
                    if file.name not in done:
                        done[file.name] = await self.calls().upload(file.name, file.content)
            return True
        except TimeoutError:
            code = "timeout"
        except DeliveryFailed as error:
            if not error.permanent and delivery.attempt < UPLOAD_ATTEMPTS:
                raise
            code = error.code
        log.warning("no file for delivery %s: %s", delivery.id, code)
        self._uploaded.pop(delivery.id, None)
        return False

    async def share(self, delivery_id: str, *, channel: str, thread: str | None) -> bool:
        """Show the files of a message that is shown. Returns whether none is missing; what may be there isn't shared again."""
        files = self._uploaded.pop(delivery_id, None)
        if not files:
            return True
        bounded(self._shared, delivery_id, None)
        try:
            async with asyncio.timeout(UPLOAD_SECONDS):
                await self.calls().share(files, channel=channel, thread=thread)
        except TimeoutError:
            log.warning("the files of delivery %s may not have been shared", delivery_id)
        except RateLimited:
            log.warning("the files of delivery %s were not shared: rate limited", delivery_id)
            return False
        except DeliveryFailed as error:
            log.warning("the files of delivery %s were not shared: %s", delivery_id, error.code)
            return error.code in MAYBE_DONE
        return True
