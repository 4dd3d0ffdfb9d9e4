"""What came back.

What lives here: one answer, read whole, as a value. What does not: getting it (client.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.errors import BotError
from durable_core.codec import read_json


class NotJson(BotError):
    """A body that is not JSON; the body itself is not told."""

    def __init__(self) -> None:
        super().__init__("the answer is not JSON")


@dataclass(frozen=True, slots=True)
class Fetched:
    """An answer: a redirect is one too, it is never followed. `headers` finds names in any case."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    def json(self) -> Any:
        """Read the body as JSON; NaN, Infinity and what is nested too deeply are none.

        Raises: NotJson.
        """
        try:
            found = read_json(self.body)
        except ValueError:
            found = NotJson
        if found is NotJson:  # raised out here, so that the error doesn't hold the parser's, which holds the body
            raise NotJson
        return found
