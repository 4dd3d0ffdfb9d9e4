"""One call of a provider through pydantic-ai's direct layer.

What lives here: sending, streaming and reading the reply. What does not: messages (convert.py), errors (failures.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, cast

from pydantic import JsonValue
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import ModelResponse, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta, ToolCallPart
from pydantic_ai.models import Model as ProviderModel
from pydantic_ai.models import ModelRequestParameters, StreamedResponse, infer_model
from pydantic_ai.settings import ModelSettings
from pydantic_core import from_json, to_json

from bot.errors import ModelFailed
from bot.history import Usage
from bot.model import Finish, ModelReply, ModelRequest, OnText, RequestedCall
from bot.models.convert import to_definitions, to_instructions, to_messages
from bot.models.failures import to_failure

FIRST_TEXT_S: Final = 90.0
SILENCE_S: Final = 600.0
_FINISH: Final = {"stop": Finish.STOP, "tool_call": Finish.TOOLS, "length": Finish.LENGTH}


class _ListenerFailed(Exception):
    """Carries an error that isn't the provider's past the mapping."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Provider:
    """A pydantic-ai model with its settings; the client is made once, at the first call."""

    def __init__(self, model: str | ProviderModel, settings: Mapping[str, Any]) -> None:
        self._named = model
        self._settings = cast("ModelSettings", {"max_retries": 0, **settings})
        self._model: ProviderModel | None = None

    async def reply(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        """Ask once. What ``on_text`` raises comes through as it is; everything else becomes ``ModelFailed``."""
        text = _Text(on_text)
        try:
            response = await self._stream(request, text)
        except _ListenerFailed as failed:
            raise failed.error from None
        except Exception as error:
            raise to_failure(error) from error
        return _read(response, text.whole)

    async def _stream(self, request: ModelRequest, text: _Text) -> ModelResponse:
        if self._model is None:
            self._model = infer_model(self._named)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(FIRST_TEXT_S) as limit, self._open(self._model, request) as stream:
            async for event in stream:
                limit.reschedule(loop.time() + SILENCE_S)
                await text.take(event)
            return stream.get()

    def _open(self, model: ProviderModel, request: ModelRequest) -> AbstractAsyncContextManager[StreamedResponse]:
        return model_request_stream(
            model,
            to_messages(request.history, to_instructions(request)),
            model_settings=self._settings,
            model_request_parameters=ModelRequestParameters(function_tools=to_definitions(request.tools)),
        )


class _Text:
    """The text so far; parts with something between them are set apart by an empty line."""

    def __init__(self, on_text: OnText) -> None:
        self._on_text = on_text
        self._apart = False
        self.whole = ""

    async def take(self, event: object) -> None:
        match event:
            case PartStartEvent(part=TextPart(content=content)):
                await self._add(content)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=content)):
                await self._add(content)
            case PartStartEvent():
                self._apart = bool(self.whole)

    async def _add(self, content: str) -> None:
        if not content:
            return
        piece = ("\n\n" if self._apart else "") + _clean(content)
        self._apart = False
        self.whole += piece
        try:
            await self._on_text(piece)
        except Exception as error:
            raise _ListenerFailed(error) from error


def _read(response: ModelResponse, text: str) -> ModelReply:
    if response.finish_reason == "content_filter":
        raise ModelFailed("content_filter", "the provider filtered the reply", retryable=False)
    if response.finish_reason == "error":
        raise ModelFailed("provider_error", "the provider ended the reply with an error", retryable=True)
    calls = tuple(
        RequestedCall(part.tool_name, _arguments(part.args), provider_id=part.tool_call_id)
        for part in response.parts
        if isinstance(part, ToolCallPart)
    )
    usage = response.usage
    return ModelReply(
        text,
        calls,
        finish=_FINISH.get(response.finish_reason or "", Finish.TOOLS if calls else Finish.STOP),
        usage=Usage(
            usage.input_tokens,
            usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
        ),
        model=response.model_name or "",
    )


def _arguments(written: object) -> dict[str, JsonValue] | str:
    """Read arguments as strict JSON; what isn't one object stays the text the model wrote."""
    if not written:
        return {}
    try:
        parsed = from_json(written if isinstance(written, str) else to_json(written), allow_inf_nan=False)
    except ValueError:
        return _clean(written) if isinstance(written, str) else json.dumps(written, default=repr)
    if isinstance(parsed, dict):
        return parsed
    return written if isinstance(written, str) else json.dumps(parsed)


def _clean(text: str) -> str:
    # A provider's JSON may hold half a surrogate pair, which no store and no channel can encode.
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
