"""The conversation as we store it: items, each with origin and trust, and their plain JSON form.

What lives here: our own item types and the rule that calls and results pair up. What does not: providers' message types
(models/convert.py), storage and folding (the core), the decision what comes next (turn.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from pydantic import JsonValue, TypeAdapter, ValidationError

from bot.errors import BadHistory


class Trust(StrEnum):
    """Whose words an item holds, and so how far they may steer what happens."""

    REQUESTER = "requester"
    MEMBER = "member"
    UNTRUSTED = "untrusted"
    TOOL = "tool"
    MODEL = "model"
    SYSTEM = "system"


class ResultStatus(StrEnum):
    """How a tool call ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens one model call was billed for."""

    input_tokens: int = 0
    output_tokens: int = 0
    _: KW_ONLY
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def total(self) -> int:
        """Sum input and output."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call the model asked for.

    ``call_id`` is ours (``turn.step.ordinal``) and equal over attempts; ``provider_id`` is only an attribute. ``raw`` holds
    what the model wrote when that was no JSON object; ``arguments`` is then empty.
    """

    call_id: str
    tool: str
    _: KW_ONLY
    arguments: dict[str, JsonValue]
    provider_id: str = ""
    raw: str | None = None


@dataclass(frozen=True, slots=True)
class UserItem:
    """What a person wrote. ``author`` is the displayed name, ``principal`` the identity, ``at`` milliseconds."""

    text: str
    author: str
    _: KW_ONLY
    principal: str
    origin: str
    trust: Trust
    at: int


@dataclass(frozen=True, slots=True)
class AssistantItem:
    """What the model answered: text, tool calls, or both."""

    text: str
    calls: tuple[Call, ...] = ()
    _: KW_ONLY
    model: str = ""
    usage: Usage = field(default_factory=Usage)

    @property
    def origin(self) -> str:
        """Name the model as where this came from."""
        return f"model:{self.model}"

    @property
    def trust(self) -> Trust:
        """Return the trust of all model text."""
        return Trust.MODEL


@dataclass(frozen=True, slots=True)
class ResultItem:
    """How one call ended. ``content`` is the tool's JSON result, or text that says why there is none.

    ``private_to`` is the principal whose own account it was fetched with: nobody else reads it, unless it was posted.
    """

    call_id: str
    tool: str
    _: KW_ONLY
    status: ResultStatus
    content: JsonValue
    origin: str
    trust: Trust = Trust.TOOL
    private_to: str | None = None


@dataclass(frozen=True, slots=True)
class NoteItem:
    """Text that is neither a person's message nor an answer: context read from a thread, or a word from the framework."""

    text: str
    origin: str
    _: KW_ONLY
    trust: Trust


Item: TypeAlias = UserItem | AssistantItem | ResultItem | NoteItem

# Built once: a type adapter compiles its validator.
_USER: Final = TypeAdapter(UserItem)
_ASSISTANT: Final = TypeAdapter(AssistantItem)
_RESULT: Final = TypeAdapter(ResultItem)
_NOTE: Final = TypeAdapter(NoteItem)


def to_json(item: Item) -> dict[str, JsonValue]:
    """Turn an item into plain JSON; ``from_json`` gives back an equal one."""
    match item:
        case UserItem():
            return {"kind": "user", **_USER.dump_python(item, mode="json")}
        case AssistantItem():
            return {"kind": "assistant", **_ASSISTANT.dump_python(item, mode="json")}
        case ResultItem():
            return {"kind": "result", **_RESULT.dump_python(item, mode="json")}
        case NoteItem():
            return {"kind": "note", **_NOTE.dump_python(item, mode="json")}


def from_json(stored: Mapping[str, JsonValue]) -> Item:
    """Read an item from its plain JSON.

    Raises:
        BadHistory: The kind is unknown or a field is missing or of the wrong type.
    """
    fields = {name: value for name, value in stored.items() if name != "kind"}
    try:
        match stored.get("kind"):
            case "user":
                return _USER.validate_python(fields)
            case "assistant":
                return _ASSISTANT.validate_python(fields)
            case "result":
                return _RESULT.validate_python(fields)
            case "note":
                return _NOTE.validate_python(fields)
            case kind:
                raise BadHistory(f"unknown kind {kind!r}")
    except ValidationError as error:
        where = "; ".join(
            f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False, include_input=False)
        )
        raise BadHistory(where) from error


def validate_history(items: Iterable[Item]) -> None:
    """Check that every call has exactly one result directly after it, and no result stands alone.

    Results follow the answer that asked for them, in any order, before anything else. The last answer may not wait either:
    an open call would be refused by every provider.

    Raises:
        BadHistory: With the position of the first item that breaks the rule.
    """
    owed: dict[str, str] = {}
    seen: set[str] = set()
    position = -1
    for position, item in enumerate(items):
        if isinstance(item, ResultItem):
            tool = owed.pop(item.call_id, None)
            if tool is None:
                raise BadHistory(f"result of {item.call_id} answers no open call", position)
            if tool != item.tool:
                raise BadHistory(f"result of {item.call_id} names {item.tool}, the call {tool}", position)
            continue
        if owed:
            raise BadHistory(f"no result for {', '.join(owed)}", position)
        if isinstance(item, AssistantItem):
            for call in item.calls:
                if call.call_id in seen:
                    raise BadHistory(f"call {call.call_id} comes twice", position)
                seen.add(call.call_id)
                owed[call.call_id] = call.tool
    if owed:
        raise BadHistory(f"no result for {', '.join(owed)}", position)


def last_user(items: Sequence[Item]) -> UserItem | None:
    """Find the latest thing a person said."""
    return next((item for item in reversed(items) if isinstance(item, UserItem)), None)
