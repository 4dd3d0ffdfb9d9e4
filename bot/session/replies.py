"""A model's reply before it is recorded: of the right shape, and holding only what can be stored.

What lives here: checking, scrubbing, naming its calls. What does not: the call (thinking.py), checking arguments (bot/tools.py).
"""

from __future__ import annotations

import math
from dataclasses import replace

from pydantic import JsonValue

from bot.edge import storable
from bot.errors import ModelFailed
from bot.history import Call, Usage
from bot.model import Finish, ModelReply, RequestedCall, reply_to_json
from bot.turn.state import Turn
from durable_core import codec
from durable_core.errors import TooLarge, Unstorable


def scrubbed(reply: object, *, most: int = codec.LIMIT) -> ModelReply:
    """Return a reply that can be recorded: halves of surrogate pairs and numbers that JSON lacks are replaced.

    Raises: ModelFailed (no retry mends it: not a reply, or one that can't be stored).
    """
    if not isinstance(reply, ModelReply):
        raise _bad(f"the model returned a {type(reply).__name__}, not a ModelReply")
    fields: list[tuple[object, type | tuple[type, ...]]] = [
        (reply.text, str),
        (reply.calls, (tuple, list)),
        (reply.finish, Finish),
        (reply.usage, Usage),
        (reply.model, str),
    ]
    if not all(isinstance(value, kind) for value, kind in fields):
        raise _bad("the model returned a ModelReply with a field of another type")
    try:
        clean = replace(
            reply,
            text=storable(reply.text),
            calls=tuple(_call(call) for call in reply.calls),
            model=storable(reply.model),
        )
        codec.encode(reply_to_json(clean), limit=most)
    except (TooLarge, Unstorable, ValueError, TypeError, RecursionError) as error:
        raise _bad(f"the model's reply can't be stored: {error}") from error
    return clean


def clean_failure(error: ModelFailed) -> ModelFailed:
    """Return a model's failure in words that can be stored."""
    code, message = storable(str(error.code)), storable(str(error.message))
    return ModelFailed(code, message, retryable=bool(error.retryable), retry_after=error.retry_after)


def calls_of(turn: Turn, reply: ModelReply) -> tuple[Call, ...]:
    """Give each requested call our own id, equal over attempts: turn, step, place."""
    return tuple(
        Call(
            f"{turn.number}.{turn.step_index}.{place}",
            asked.tool,
            arguments=asked.arguments if isinstance(asked.arguments, dict) else {},
            provider_id=asked.provider_id,
            raw=asked.arguments if isinstance(asked.arguments, str) else None,
        )
        for place, asked in enumerate(reply.calls)
    )


def _call(call: object) -> RequestedCall:
    if not isinstance(call, RequestedCall):
        raise TypeError(f"a {type(call).__name__} among its calls")
    arguments = call.arguments
    if not isinstance(arguments, dict | str):
        raise TypeError("arguments that are neither an object nor text")
    clean = storable(arguments) if isinstance(arguments, str) else {_key(key): _value(value) for key, value in arguments.items()}
    return RequestedCall(storable(call.tool), clean, provider_id=storable(call.provider_id))


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError("an argument's name that isn't text")
    return storable(key)


def _value(value: object) -> JsonValue:
    match value:
        case str():
            return storable(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case None | bool() | int():
            return value
        case list() | tuple():
            return [_value(part) for part in value]
        case dict():
            return {_key(key): _value(part) for key, part in value.items()}
        case _:
            raise TypeError(f"an argument of type {type(value).__name__}")


def _bad(message: str) -> ModelFailed:
    return ModelFailed("bad_reply", message, retryable=False)
