"""Every provider that pydantic-ai knows, behind our protocol.

What lives here: the model object, which stays cheap until its first call. What does not: pydantic-ai itself (provider.py),
imported when first asked: its import takes longer than the start of everything else.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bot.model import ModelReply, ModelRequest, OnText

if TYPE_CHECKING:
    from pydantic_ai.models import Model as ProviderModel

    from bot.models.provider import Provider


class DirectModel:
    """A provider's model, named ``provider:name`` or given as a pydantic-ai model.

    ``settings`` are pydantic-ai model settings (``temperature``, ``max_tokens``, …). Clients retry nothing by themselves:
    a hidden retry is paid twice and counted once.
    """

    def __init__(self, model: str | ProviderModel, *, settings: Mapping[str, Any] | None = None) -> None:
        self._model = model
        self._settings = dict(settings or {})
        self._provider: Provider | None = None

    @property
    def name(self) -> str:
        """Return the name this model was asked for by."""
        return self._model if isinstance(self._model, str) else self._model.model_name

    async def reply(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        """Make one streamed attempt.

        Raises:
            ModelFailed: For every failure of the provider, the network, or the set-up.
        """
        if self._provider is None:
            module = await asyncio.to_thread(importlib.import_module, "bot.models.provider")
            self._provider = module.Provider(self._model, self._settings)
        return await self._provider.reply(request, on_text)
