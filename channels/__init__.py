"""How people reach the bot: adapters, their contract, and the values that cross it.

What lives here: the names an adapter's author imports. What does not: sessions, approvals, storage or dedupe.
"""

from channels.cards import Button, Card, CardItem, CardOutcome, Form, FormField
from channels.contract import (
    Capabilities,
    Channel,
    Checked,
    Closable,
    Directory,
    Findable,
    Forms,
    Identifies,
    KnowsEmail,
    Linkable,
    Membership,
    Verified,
)
from channels.errors import (
    BadAddress,
    ChannelError,
    DeliveryFailed,
    InvalidSignature,
    MalformedPayload,
    PayloadTooLarge,
    RateLimited,
)
from channels.events import Author, Click, Event, Ignored, Ingress, Message, Place, Standing
from channels.http import WebhookRequest, WebhookResponse
from channels.identity import IdentityProvider
from channels.outbound import Delivery, MessageRef, Outbound

__all__ = [
    "Author",
    "BadAddress",
    "Button",
    "Capabilities",
    "Card",
    "CardItem",
    "CardOutcome",
    "Channel",
    "ChannelError",
    "Checked",
    "Click",
    "Closable",
    "Delivery",
    "DeliveryFailed",
    "Directory",
    "Event",
    "Findable",
    "Form",
    "FormField",
    "Forms",
    "Identifies",
    "IdentityProvider",
    "Ignored",
    "Ingress",
    "InvalidSignature",
    "KnowsEmail",
    "Linkable",
    "MalformedPayload",
    "Membership",
    "Message",
    "MessageRef",
    "Outbound",
    "PayloadTooLarge",
    "Place",
    "RateLimited",
    "Standing",
    "Verified",
    "WebhookRequest",
    "WebhookResponse",
]
