"""A platform that is less kind than the console's: two sends show two messages, and only `find` tells that one is there.

What lives here: the smallest adapter whose exactly-once hangs on the outbox alone. What does not: people; a test posts events.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, ClassVar

from channels.contract import Capabilities, Channel, Verified
from channels.events import Author, Click, Event, Ingress, Message, Place, Standing
from channels.http import WebhookRequest, read_json
from channels.outbound import Delivery, MessageRef

NAME = "plain.ndjson"


class Plain(Channel):
    """Messages are lines of a file, named by their place in it; an edit is a line that names the message it changes."""

    name: ClassVar[str] = "plain"
    capabilities: ClassVar[Capabilities] = Capabilities(buttons=True, edit=True, find=True)

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    async def verify(self, request: WebhookRequest) -> Verified:
        return Verified(request, "a test on this machine")

    def parse(self, verified: Verified) -> Ingress:
        fields: Any = read_json(verified.request.body)
        author = Author(fields["author"], fields["author"].capitalize(), standing=Standing.MEMBER)
        address, key, place = fields["address"], fields["key"], Place("channel")
        event: Event
        if "value" in fields:
            event = Click(address, author, value=fields["value"], key=key, place=place)
        else:
            event = Message(address, author, text=fields["text"], key=key, place=place)
        return Ingress((event,))

    async def send(self, delivery: Delivery) -> MessageRef:
        return self._show(delivery, edits=None)

    async def edit(self, ref: MessageRef, delivery: Delivery) -> MessageRef:
        self._show(delivery, edits=ref.id)
        return ref

    async def find(self, address: str, delivery_id: str) -> MessageRef | None:
        for message in shown(self._path.parent):
            if message["delivery"] == delivery_id and message["address"] == address:
                return MessageRef(self.name, address, id=message["id"])
        return None

    def _show(self, delivery: Delivery, *, edits: str | None) -> MessageRef:
        line = {
            "delivery": delivery.id,
            "address": delivery.address,
            "edits": edits,
            **delivery.message.to_json(),
        }
        with self._path.open("ab", buffering=0) as file:
            place = os.fstat(file.fileno()).st_size
            file.write((json.dumps(line) + "\n").encode())
        return MessageRef(self.name, delivery.address, id=f"m{place}")


def shown(folder: Path) -> list[dict[str, Any]]:
    """Read what the platform shows: one entry a send, as its last edit left it."""
    path = folder / NAME
    messages: dict[str, dict[str, Any]] = {}
    place = 0
    for raw in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
        line = json.loads(raw)
        name = line["edits"] or f"m{place}"
        if line["edits"]:
            messages[name] |= {"text": line["text"], "card": line["card"]}
        else:
            messages[name] = {**line, "id": name}
        place += len(raw)
    return list(messages.values())
