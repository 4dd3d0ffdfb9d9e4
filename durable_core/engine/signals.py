"""What reaches a run from outside: signals by hook or by run, and cancels.

What lives here: their bodies and admissions. What does not: what runs tell each other (durable_core/internal.py), and what
all that leads to (inbox.py).
"""

from __future__ import annotations

import secrets
from base64 import b32encode
from typing import Any, Final

from durable_core import codec
from durable_core.crypto import payload_digest
from durable_core.ids import new_id
from durable_core.model import Admission, CommandKind, ToAddress, ToRun

HOOK: Final = "hook"
"""The channel of hooks: its addresses are their names and tokens."""
TOKEN_PREFIX: Final = "whk_"  # noqa: S105 - what all begin with
_TOKEN_BYTES: Final = 20


def new_token() -> str:
    """Return a token for a URL: 160 random bits, no time in it."""
    return TOKEN_PREFIX + b32encode(secrets.token_bytes(_TOKEN_BYTES)).decode("ascii").lower()


def signal_admission(target: ToAddress | ToRun, name: str, value: Any, *, key: str | None, by: str) -> Admission:
    """Return a signal on its way.

    Raises:
        Unstorable, TooLarge: the value can't be kept.
    """
    body = codec.encode({"kind": "signal", "name": name, "body": value})
    where = codec.check_key(target.run_id, "run_id") if isinstance(target, ToRun) else HOOK
    return Admission(
        source=f"signal:{where}",
        key=codec.check_key(key or new_id("key"), "key"),
        digest=payload_digest(body),
        on_conflict="refuse",
        submission_id=new_id("sub"),
        target=target,
        kind=CommandKind.SIGNAL,
        body=body,
        principal=codec.check_name(by, "by"),
    )


def by_hook(hook: str) -> ToAddress:
    """Return a hook as a target: whoever waits there."""
    return ToAddress(channel=HOOK, address=codec.check_key(hook, "hook"), new=None)


def cancel_admission(run_id: str, *, reason: str, by: str, key: str | None = None) -> Admission:
    """Return a cancel on its way."""
    body = codec.encode({"reason": reason})
    return Admission(
        source=f"cancel:{codec.check_key(run_id, 'run_id')}",
        key=codec.check_key(key or new_id("key"), "key"),
        digest=payload_digest(body),
        on_conflict="merge",
        submission_id=new_id("sub"),
        target=ToRun(run_id=run_id),
        kind=CommandKind.CANCEL,
        body=body,
        principal=codec.check_name(by, "by"),
    )
