"""The contract of a channel adapter: what it must do, numbered, and what it may do.

What lives here: `Channel`, `Capabilities` and the optional protocols. What does not: any adapter, or the kit that checks one
(`channels.testing`).

Promises, each with a test of the same number in the kit:

C1   `verify` refuses a wrong, stale or absent signature before anything is parsed.
C2   `parse` is pure: no clock, no I/O; equal bytes parse to equal events, so a redelivery has equal keys.
C3   Addresses round-trip through the codec unchanged and carry the tenancy.
C4   `send` twice with the same delivery id shows one message and returns equal refs.
C5   `edit` changes the message in place; without the capability `edit` it posts a follow-up.
C6   What the bot posted never comes back as an event.
C7   Hostile input ends in a `ChannelError` or `Ignored`, never in another exception.
C8   `find` returns the ref of what was sent, and None for what was not (channels with the capability `find`).
C9   An `Outbound` of every kind is deliverable: text, card (open, partly settled, settled, of several questions, with many
     options, with forms), notice, long text. What the platform can't do degrades, nothing is dropped.
C10  A private message is seen by its one reader only, or it is refused with `DeliveryFailed(..., permanent=True)`.
C11  Claims of the platform's sign-in name the author that the platform's events name, or nobody (channels that identify).
C12  The e-mail address of an author is one that the platform vouches for, or None: not told is no error (channels that know).
C13  A link to an address leads to where it is shown, equal for equal addresses, with nothing secret in it, or is None
     (channels that link).

C4 needs C8 or an idempotency of the platform's own. A channel with neither is at-least-once and says so in its docs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from channels.cards import Form
from channels.events import Author, Click, Ingress, Place
from channels.http import WebhookRequest
from channels.identity import IdentityProvider
from channels.outbound import Delivery, MessageRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What the platform can do. `max_text` is in characters: a longer text goes out in parts."""

    buttons: bool = False
    forms: bool = False
    edit: bool = False
    private: bool = False
    find: bool = False
    max_text: int = 4_000


@dataclass(frozen=True, slots=True)
class Verified:
    """A request whose sender is proven. Only `verify` makes one, and `parse` takes nothing else.

    `proof` names what was checked ("hmac-sha256"), or why nothing needs to be.
    """

    request: WebhookRequest
    proof: str

    def __post_init__(self) -> None:
        """Refuse to stand for nothing."""
        if not self.proof:
            raise ValueError("a verified request names its proof")


class Channel(ABC):
    """How people on one platform reach the bot, and how it answers. See the module for promises C1 to C13."""

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]

    @abstractmethod
    async def verify(self, request: WebhookRequest) -> Verified:
        """Prove who sent the raw bytes (C1). Raises: InvalidSignature, PayloadTooLarge."""

    @abstractmethod
    def parse(self, verified: Verified) -> Ingress:
        """Read a proven request (C2, C6, C7). Raises: MalformedPayload, BadAddress."""

    @abstractmethod
    async def send(self, delivery: Delivery) -> MessageRef:
        """Show a message, once per delivery id (C4, C9, C10). Raises: DeliveryFailed, RateLimited, BadAddress."""

    async def edit(self, ref: MessageRef, delivery: Delivery) -> MessageRef:
        """Replace the whole message (C5). Returns the ref of what now shows it; the default posts a follow-up."""
        return await self.send(delivery)


@runtime_checkable
class Findable(Protocol):
    """A channel that can tell whether a delivery is shown already (C8): what makes one visible message certain."""

    async def find(self, address: str, delivery_id: str) -> MessageRef | None:
        """Return the ref of the message that this delivery became, or None. Raises: DeliveryFailed, RateLimited."""
        ...


@runtime_checkable
class Forms(Protocol):
    """A channel whose platform shows a form in answer to a click; one that keeps its forms on the page needs none of this."""

    async def open_form(self, click: Click, form: Form, *, question: str) -> None:
        """Show a form to the one who clicked, and to nobody else. Sending it is a `Click` with the form's value and address.

        Called once the click is acknowledged, at most once for each. Raises: DeliveryFailed, RateLimited; nothing is lost then.
        """
        ...


@runtime_checkable
class Directory(Protocol):
    """A channel whose platform has to be asked who somebody is and who can read along: a look-up, so after admission."""

    async def look_up(self, address: str, author: Author, place: Place, *, fresh: bool = False) -> tuple[Author, Place]:
        """Return both with what the platform knows of them; `fresh` takes nothing remembered for longer than 30 s.

        A final "nobody knows" has `Standing.UNKNOWN`; a failure that may pass is raised, so that nobody is refused for it.

        Raises: RateLimited, DeliveryFailed (not permanent), BadAddress.
        """
        ...


@runtime_checkable
class Membership(Protocol):
    """A group of people that a channel's platform keeps: a look-up, so never before the admission."""

    @property
    def channel(self) -> str:
        """The name of the channel whose people it knows."""
        ...

    async def includes(self, author: Author) -> bool:
        """Tell whether somebody is in it. Raises: ChannelError where it can't be told; that is no yes."""
        ...


@runtime_checkable
class Identifies(Protocol):
    """A channel whose platform has a sign-in of its own (OpenID Connect): it proves a person, not only a browser (C11)."""

    def identity(self, address: str | None = None) -> IdentityProvider | None:
        """Return the platform's sign-in, or None where it is not set up; no look at the network.

        With an address, its `extra` leads to the workspace of that address.
        """
        ...

    def author_of(self, claims: Mapping[str, object], tenancy: str | None = None) -> tuple[str, str] | None:
        """Return tenancy and author id that proven claims name, as `Author` has them; None: they name nobody.

        The caller has checked the token's origin, `iss`, `aud`, `nonce` and time. Where somebody belongs to several
        tenancies, `tenancy` says which one is asked for; it changes nothing about who they are.
        """
        ...


@runtime_checkable
class KnowsEmail(Protocol):
    """A channel whose platform may tell somebody's e-mail address: a look-up, so after admission (C12)."""

    async def email_of(self, address: str, author: Author) -> str | None:
        """Return the address that the platform vouches for, or None where it has or tells none.

        Raises: RateLimited, DeliveryFailed (not permanent), BadAddress.
        """
        ...


@runtime_checkable
class Linkable(Protocol):
    """A channel whose conversations have an address in the browser (C13)."""

    async def link_to(self, address: str) -> str | None:
        """Return an http(s) link to the conversation, or None where there is none; whoever may not read it sees nothing by it.

        A failure is None as well: a page does without. Raises: BadAddress.
        """
        ...


@runtime_checkable
class Checked(Protocol):
    """A channel that can say before anything runs what it lacks."""

    def problems(self) -> tuple[str, ...]:
        """List what keeps it from working, one sentence each; no look at the network."""
        ...


@runtime_checkable
class Closable(Protocol):
    """A channel that holds connections."""

    async def close(self) -> None:
        """Let go of them; no call follows."""
        ...
