"""The arguments of a Web API call, as Slack reads them from a query, a form or JSON.

What lives here: reading and the types of arguments. What does not: what a method does with them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.testing.slack.refusals import Refused
from bot.testing.slack.values import Json

_TRUE = frozenset({"1", "true"})


@dataclass(frozen=True, slots=True)
class Args:
    """What was given; a form's values are text, and structures in it are JSON in text."""

    values: Mapping[str, Any]

    def has(self, name: str) -> bool:
        """Tell whether it was given and isn't empty."""
        return self.values.get(name) not in (None, "", [])

    def text(self, name: str, default: str = "") -> str:
        """Read a string. Raises: Refused."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise Refused("invalid_arguments", messages=[f"must be a string [json-pointer:/{name}]"])
        return value

    def required(self, name: str) -> str:
        """Read a string that has to be there. Raises: Refused."""
        text = self.text(name)
        if not text:
            raise Refused("invalid_arguments", messages=[f"missing required field: {name}"])
        return text

    def flag(self, name: str) -> bool:
        """Read a yes or no."""
        value = self.values.get(name)
        return value if isinstance(value, bool) else str(value).lower() in _TRUE

    def integer(self, name: str, default: int, *, most: int, error: str) -> int:
        """Read a number from 1 to `most`. Raises: Refused."""
        value = self.values.get(name)
        if value in (None, ""):
            return default
        try:
            number = int(value)
        except (TypeError, ValueError):
            raise Refused(error) from None
        if not 1 <= number <= most:
            raise Refused(error)
        return number

    def structure(self, name: str, error: str) -> Any:
        """Read a structure, or None. Raises: Refused with `error` where it isn't JSON."""
        value = self.values.get(name)
        if value in (None, ""):
            return None
        if isinstance(value, str):
            try:
                return json.loads(value)
            except ValueError:
                raise Refused(error) from None
        return json.loads(json.dumps(value))

    def metadata(self) -> Json | None:
        """Read `metadata`. Raises: Refused."""
        value = self.structure("metadata", "invalid_metadata_format")
        if value is None:
            return None
        if not isinstance(value, dict) or value.keys() - {"event_type", "event_payload", "entities"}:
            raise Refused("invalid_metadata_format")
        kind, payload = value.get("event_type"), value.get("event_payload")
        if not isinstance(kind, str) or not kind or not isinstance(payload, dict):
            raise Refused("invalid_metadata_schema")
        if len(json.dumps(payload)) > 8_192:
            raise Refused("metadata_too_large")
        return value
