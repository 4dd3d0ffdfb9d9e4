"""Models by name.

What lives here: from an agent's ``model`` to something the turn can ask. What does not: the protocol (bot/model.py).
"""

from __future__ import annotations

from bot.errors import BadModel
from bot.model import Model
from bot.models.direct import DirectModel
from bot.scripted import ScriptedModel

SCRIPTED = "scripted"
_SHAPES = "a model is 'scripted', 'provider:name' or a Model"


def open_model(model: str | Model) -> Model:
    """Resolve ``scripted``, ``provider:name`` or a model object; nothing is imported or connected before the first call.

    Raises:
        BadModel: The name has another shape.
    """
    if not isinstance(model, str):
        if isinstance(model, type) or not callable(getattr(model, "reply", None)):
            raise BadModel(repr(model), _SHAPES)
        return model
    if model == SCRIPTED:
        return ScriptedModel()
    provider, _, name = model.partition(":")
    if not provider or not name:
        raise BadModel(model, _SHAPES)
    return DirectModel(model)
