"""Ids: the types, how they are made, and the event id that carries its own position.

What lives here: making and reading ids. What does not: what they point at, or who may use them.
"""

from __future__ import annotations

import re
import secrets
import time
from base64 import b32encode
from typing import Final, NewType

from durable_core.errors import BadEventId

SessionId = NewType("SessionId", str)
SubmissionId = NewType("SubmissionId", str)
PromptId = NewType("PromptId", str)
DeliveryId = NewType("DeliveryId", str)
EventId = NewType("EventId", str)

_CROCKFORD: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_ULID: Final = r"[0-7][0-9a-hjkmnp-tv-z]{25}"  # 26 characters hold 130 bits, so the first one stays below 8
_PREFIX: Final = re.compile(r"[a-z]{2,8}")
_RUN_ID: Final = re.compile(rf"[a-z]{{2,8}}_({_ULID})")
_EVENT_ID: Final = re.compile(rf"evt_({_ULID})_([0-9a-f]{{10}})")
_MAX_SEQ: Final = 16**10 - 1


def new_id(prefix: str) -> str:
    """Return `prefix` + `_` + a new ULID: sortable by the millisecond, 80 bits nobody can guess."""
    if _PREFIX.fullmatch(prefix) is None:
        raise ValueError(f"an id's prefix is 2 to 8 lower-case letters, not {prefix!r}")
    return f"{prefix}_{_ulid(time.time_ns() // 1_000_000, secrets.randbits(80))}"


def request_id() -> PromptId:
    """Return an id that may stand in a URL or a button: 160 random bits, no time in it."""
    return PromptId("prm_" + b32encode(secrets.token_bytes(20)).decode("ascii").lower())


def event_id(run_id: str, seq: int) -> EventId:
    """Return the id of event `seq` of `run_id`; ids of one run sort in the order of `seq`.

    Raises:
        BadEventId: `run_id` is not one of `new_id`, or `seq` is not in 0..16**10-1.
    """
    match = _RUN_ID.fullmatch(run_id)
    if match is None or not 0 <= seq <= _MAX_SEQ:
        raise BadEventId(f"{run_id}:{seq}")
    return EventId(f"evt_{match[1]}_{seq:010x}")


def parse_event_id(text: str) -> tuple[str, int]:
    """Return (the ULID part of the run's id, seq) of an event id.

    Only the exact form `event_id` writes is read: another spelling of the same position is refused,
    so that one position has one id.

    Raises:
        BadEventId: anything else.
    """
    match = _EVENT_ID.fullmatch(text)
    if match is None:
        raise BadEventId(text)
    return match[1], int(match[2], 16)


def _ulid(at_ms: int, random: int) -> str:
    bits = at_ms << 80 | random
    return "".join(_CROCKFORD[bits >> shift & 31] for shift in range(125, -1, -5))
