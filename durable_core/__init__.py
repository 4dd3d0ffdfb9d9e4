"""What must survive: runs, steps, prompts, streams and the outbox.

What lives here: the names that others build on, each loaded when it is first used. What does not: bots, channels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from durable_core.authorizing import Authorized, NotAuthorized
    from durable_core.claiming import KeyClaim, StoreCall
    from durable_core.clock import Clock, DatabaseClock, ManualClock
    from durable_core.context import ChildHandle, StepContext, WorkflowContext, step_context
    from durable_core.crypto import KeyRing
    from durable_core.engine.engine import Engine
    from durable_core.engine.handles import PromptView, RunHandle, RunView
    from durable_core.errors import Conflict, DurableError, NotFound, RunCancelled, RunFailed
    from durable_core.failures import ChildFailed, Fatal, HookTaken, StepFailed
    from durable_core.keys import KeyProvider
    from durable_core.model import ClaimState
    from durable_core.operations import Answer, Hook, Option, Webhook
    from durable_core.registry import Workflow, step, workflow
    from durable_core.retry import RetryPolicy
    from durable_core.store import Store
    from durable_core.stores.open import StoreOptions, open_store
    from durable_core.streams import EventView, Streams
    from durable_core.worker import Duties, Held, Worker, WorkerOptions

__all__ = [
    "Answer",
    "Authorized",
    "ChildFailed",
    "ChildHandle",
    "ClaimState",
    "Clock",
    "Conflict",
    "DatabaseClock",
    "DurableError",
    "Duties",
    "Engine",
    "EventView",
    "Fatal",
    "Held",
    "Hook",
    "HookTaken",
    "KeyClaim",
    "KeyProvider",
    "KeyRing",
    "ManualClock",
    "NotAuthorized",
    "NotFound",
    "Option",
    "PromptView",
    "RetryPolicy",
    "RunCancelled",
    "RunFailed",
    "RunHandle",
    "RunView",
    "StepContext",
    "StepFailed",
    "Store",
    "StoreCall",
    "StoreOptions",
    "Streams",
    "Webhook",
    "Worker",
    "WorkerOptions",
    "Workflow",
    "WorkflowContext",
    "open_store",
    "step",
    "step_context",
    "workflow",
]

_HOMES = {
    "authorizing": ("Authorized", "NotAuthorized"),
    "claiming": ("KeyClaim", "StoreCall"),
    "clock": ("Clock", "DatabaseClock", "ManualClock"),
    "context": ("ChildHandle", "StepContext", "WorkflowContext", "step_context"),
    "crypto": ("KeyRing",),
    "engine.engine": ("Engine",),
    "engine.handles": ("PromptView", "RunHandle", "RunView"),
    "errors": ("Conflict", "DurableError", "NotFound", "RunCancelled", "RunFailed"),
    "failures": ("ChildFailed", "Fatal", "HookTaken", "StepFailed"),
    "keys": ("KeyProvider",),
    "model": ("ClaimState",),
    "operations": ("Answer", "Hook", "Option", "Webhook"),
    "registry": ("Workflow", "step", "workflow"),
    "retry": ("RetryPolicy",),
    "store": ("Store",),
    "stores.open": ("StoreOptions", "open_store"),
    "streams": ("EventView", "Streams"),
    "worker": ("Duties", "Held", "Worker", "WorkerOptions"),
}


def __getattr__(name: str) -> Any:
    """Load an exported name from its home, once."""
    from importlib import import_module  # noqa: PLC0415 - only where a name is asked for

    for home, names in _HOMES.items():
        if name in names:
            found = getattr(import_module(f"durable_core.{home}"), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module 'durable_core' has no attribute {name!r}")
