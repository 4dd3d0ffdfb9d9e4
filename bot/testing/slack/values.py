"""What a workspace is made of, and how a test reads it.

What lives here: workspaces, people, channels, posts and the view of a message. What does not: how they change (world.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]


class UserKind(StrEnum):
    """What somebody is, seen from the workspace that installed the app."""

    MEMBER = "member"
    SINGLE_CHANNEL_GUEST = "single_channel_guest"
    MULTI_CHANNEL_GUEST = "multi_channel_guest"
    STRANGER = "stranger"
    """A member of another organisation, met in a shared channel."""
    BOT = "bot"
    DELETED = "deleted"


class ChannelKind(StrEnum):
    """What sort of conversation a channel is; the value is the event's `channel_type`."""

    PUBLIC = "channel"
    PRIVATE = "group"
    IM = "im"
    MPIM = "mpim"


@dataclass(frozen=True, slots=True)
class Workspace:
    """One workspace with the app installed."""

    id: str
    name: str
    _: KW_ONLY
    token: str = field(repr=False)
    scopes: frozenset[str]
    bot_user: str
    bot_id: str
    app_id: str
    enterprise_id: str | None = None


@dataclass(frozen=True, slots=True)
class User:
    """Somebody with an account; `team_id` is their home, which a stranger has elsewhere."""

    id: str
    name: str
    _: KW_ONLY
    team_id: str
    kind: UserKind = UserKind.MEMBER
    enterprise_id: str | None = None

    @property
    def email(self) -> str:
        """Their confirmed address."""
        return f"{self.name}@example.test"


@dataclass(slots=True, eq=False)
class Channel:
    """A conversation. `connected` are the other teams of a shared channel."""

    id: str
    name: str
    _: KW_ONLY
    team_id: str
    kind: ChannelKind
    created: int
    creator: str
    members: set[str] = field(default_factory=set)
    connected: set[str] = field(default_factory=set)
    archived: bool = False

    @property
    def private(self) -> bool:
        """Tell whether only members may know of it."""
        return self.kind is not ChannelKind.PUBLIC


@dataclass(slots=True, eq=False)
class Post:
    """A message as the platform keeps it."""

    channel: str
    ts: str
    _: KW_ONLY
    user: str
    text: str
    bot_id: str | None = None
    app_id: str | None = None
    blocks: list[Json] = field(default_factory=list)
    thread_ts: str | None = None
    metadata: Json | None = None
    edited: tuple[str, str] | None = None
    """Who, and when."""
    only_for: str | None = None
    """The one who sees an ephemeral message."""
    files: list[Json] = field(default_factory=list)
    broadcast: bool = False
    client_msg_id: str | None = None
    team: str = ""


@dataclass(frozen=True, slots=True)
class Button:
    """A button that a person sees."""

    label: str
    value: str
    _: KW_ONLY
    action_id: str
    block_id: str
    style: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """An option of a list that a person sees."""

    label: str
    value: str
    _: KW_ONLY
    action_id: str
    block_id: str
    description: str = ""


@dataclass(slots=True, eq=False)
class Modal:
    """A form that is open for one person. `errors` are the app's, by block; `trouble` is Slack's own complaint."""

    view: Json
    _: KW_ONLY
    user: str
    workspace: str
    errors: dict[str, str] = field(default_factory=dict)
    trouble: str = ""

    @property
    def title(self) -> str:
        """What it is headed."""
        return str(self.view["title"]["text"])

    @property
    def fields(self) -> dict[str, str]:
        """What stands in its fields, by their labels."""
        inputs = [block for block in self.view["blocks"] if block["type"] == "input"]
        return {block["label"]["text"]: block["element"].get("initial_value", "") for block in inputs}

    @property
    def words(self) -> str:
        """All that is written in it."""
        return "\n".join(texts(self.view["blocks"]))


@dataclass(frozen=True, slots=True)
class Message:
    """A message as a person sees it, at the moment a test looked."""

    channel: str
    ts: str
    _: KW_ONLY
    author: str
    """The name of who wrote it."""
    text: str
    blocks: tuple[Json, ...] = ()
    buttons: tuple[Button, ...] = ()
    choices: tuple[Choice, ...] = ()
    """The options of its lists."""
    edited: bool = False
    ephemeral: bool = False
    thread_ts: str | None = None
    files: tuple[str, ...] = ()
    from_bot: bool = False
    links: tuple[str, ...] = ()
    """The addresses behind what can be pressed as a link."""

    @property
    def words(self) -> str:
        """All that is written in it: the blocks where there are any, as clients show them, else the text."""
        return "\n".join(texts(list(self.blocks))) if self.blocks else self.text

    @property
    def thread(self) -> str:
        """The `ts` of the thread it is in, or begins."""
        return self.thread_ts or self.ts


def texts(node: object) -> Iterator[str]:
    """Read every text that blocks show, in order."""
    if isinstance(node, list):
        for item in node:
            yield from texts(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in {"text", "alt_text"} and isinstance(value, str):
                yield value
            elif key != "confirm":
                yield from texts(value)


def buttons(blocks: list[Json]) -> Iterator[Button]:
    """Read the buttons of blocks, in order."""
    for block in blocks:
        elements = [*block.get("elements", ())] if block["type"] == "actions" else []
        if block["type"] == "section" and "accessory" in block:
            elements.append(block["accessory"])
        for element in elements:
            if element["type"] == "button":
                yield Button(
                    element["text"]["text"],
                    element.get("value", ""),
                    action_id=element["action_id"],
                    block_id=block["block_id"],
                    style=element.get("style", ""),
                    url=element.get("url", ""),
                )


def choices(blocks: list[Json]) -> Iterator[Choice]:
    """Read the options of lists, in order."""
    for block in blocks:
        for element in block.get("elements", ()) if block["type"] == "actions" else ():
            for option in element.get("options", ()) if element["type"] == "static_select" else ():
                yield Choice(
                    option["text"]["text"],
                    option["value"],
                    action_id=element["action_id"],
                    block_id=block["block_id"],
                    description=option.get("description", {}).get("text", ""),
                )
