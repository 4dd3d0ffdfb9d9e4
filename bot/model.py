"""What the turn asks of a model and what it gets back.

What lives here: the protocol and its values. What does not: providers (models/), the scripted model (scripted.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Final, Protocol, TypeAlias, runtime_checkable

from pydantic import JsonValue, TypeAdapter

from bot.history import Item, Usage

OnText: TypeAlias = Callable[[str], Awaitable[None]]


class Finish(StrEnum):
    """Why the model stopped."""

    STOP = "stop"
    TOOLS = "tools"
    LENGTH = "length"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it; ``schema`` is the JSON Schema of its arguments object."""

    name: str
    description: str
    _: KW_ONLY
    schema: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call. ``attempt`` counts the charged attempts of this call from 1, ``sequence`` the calls of the session."""

    instructions: str
    history: Sequence[Item]
    _: KW_ONLY
    tools: Sequence[ToolSpec] = ()
    attempt: int = 1
    session_id: str = ""
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A call as the model wrote it: ``arguments`` is the raw text when that was no JSON object."""

    tool: str
    arguments: dict[str, JsonValue] | str
    _: KW_ONLY
    provider_id: str = ""


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A whole reply: all text that was streamed, and the calls it asks for."""

    text: str
    calls: tuple[RequestedCall, ...] = ()
    _: KW_ONLY
    finish: Finish = Finish.STOP
    usage: Usage = field(default_factory=Usage)
    model: str = ""


_REPLY: Final = TypeAdapter(ModelReply)


def reply_to_json(reply: ModelReply) -> dict[str, JsonValue]:
    """Turn a reply into plain JSON, so that it can be recorded before a tool starts."""
    plain: dict[str, JsonValue] = _REPLY.dump_python(reply, mode="json")
    return plain


def reply_from_json(stored: Mapping[str, JsonValue]) -> ModelReply:
    """Read a recorded reply."""
    return _REPLY.validate_python(stored)


@runtime_checkable
class Model(Protocol):
    """A model the turn can ask.

    ``reply`` awaits ``on_text`` for each piece of text in order; the pieces together are the reply's text. It makes one
    attempt and never retries by itself. It is cancelled by cancelling its task.

    Raises:
        ModelFailed: From ``reply``, for everything a provider may answer or fail to.
    """

    @property
    def name(self) -> str: ...

    async def reply(self, request: ModelRequest, on_text: OnText) -> ModelReply: ...
