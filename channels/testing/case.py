"""What the contract kit needs to know about one adapter and the platform (real or simulated) behind it.

What lives here: `ChannelCase`. What does not: the tests (`contract.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from channels.address import AddressCodec
from channels.contract import Channel
from channels.http import WebhookRequest


@dataclass(frozen=True, slots=True)
class ChannelCase:
    """One adapter with a platform of its own, fresh for each test.

    `address` is where the bot may post; `codec` reads it, and one of its parts contains `tenancy`.
    `request` wraps any bytes in a request that verifies now, as the platform would send it.
    `message_body` holds one person's message, `click_body` one press of a button (None without buttons), `form_body` one form
    that was sent (None without forms), `own_post_body` the platform's echo of a post of the bot's (None if there is none).
    `forged` holds requests that must not verify, by what is wrong with them: at least "wrong" and "stale".
    `shown` returns the texts that a reader sees at the address now, oldest first, cards with their questions, outcomes
    and button labels included, and what is shown to that reader alone at another place; it takes the id of a reader, `reader`
    or `stranger`.
    `claims` is what the platform's sign-in says of the reader (None without one), `email` the address that it knows of them.
    `at_least_once` is for a platform with neither idempotency nor search: C4 then asks for deliverable repeats only.
    """

    channel: Channel
    address: str
    _: KW_ONLY
    codec: AddressCodec
    tenancy: str
    request: Callable[[bytes], Awaitable[WebhookRequest]]
    message_body: bytes
    click_body: bytes | None
    own_post_body: bytes | None
    shown: Callable[[str], Awaitable[Sequence[str]]]
    reader: str
    stranger: str
    forged: Mapping[str, WebhookRequest] = field(default_factory=dict)
    at_least_once: bool = False
    form_body: bytes | None = None
    claims: Mapping[str, object] | None = None
    email: str | None = None
