"""Starting the runs of workflow calls: with the commit of the step that asked for them, once however often it is tried.

What lives here: from calls to first inputs. What does not: gates, the commit (bot/session/), the run itself (durable_core).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import BaseModel

from bot.errors import BadArguments
from bot.flows.origin import Conversation
from bot.history import Call, ResultItem, ResultStatus, Trust
from bot.tools import Tool
from bot.turn.change import Flows
from bot.turn.children import begun
from bot.turn.state import Pending, Purpose, Stage, Turn
from durable_core.engine.starts import RUN_PREFIX, Parent, start_admission
from durable_core.errors import TooLarge, Unstorable
from durable_core.model import INTERNAL
from durable_core.operations import child_run_id

_PREFIX_ENDS: Final = "_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What became of calls that start runs: those that begin, and results of those that can't."""

    flows: Flows
    results: Mapping[str, ResultItem] = field(default_factory=dict)


def begin(
    tools: Mapping[str, Tool],
    turn: Turn,
    calls: Sequence[tuple[Call, Pending | None]],
    *,
    session_id: str,
    deployment: str,
    keep_ms: int | None,
    agent: str = "",
) -> Beginning:
    """Start a run for each call; with the call comes what it waited for, if it did."""
    pending, starts, results = [], [], {}
    for call, waited in calls:
        tool = tools[call.tool]
        origin = Conversation(
            session_id=session_id,
            turn_id=turn.turn_id,
            call_id=call.call_id,
            tool=call.tool,
            requester=turn.requester,
            channel=turn.channel,
            address=turn.address,
            agent=agent,
            direct=turn.place.kind == "direct",
        )
        run_id = _run_id(session_id, call.call_id)
        try:
            arguments = tool.validate(call.raw if call.raw is not None else call.arguments)
            starts.append(
                start_admission(
                    tool.workflow.name if tool.workflow is not None else tool.name,
                    (),
                    {name: _stored(value) for name, value in arguments.items()},
                    source=INTERNAL,
                    key=run_id,
                    creator=turn.requester.id,
                    deployment=deployment,
                    run_id=run_id,
                    parent=Parent(session_id, call.call_id),
                    keep_ms=keep_ms,
                    origin=origin.to_json(),
                )
            )
        except (BadArguments, Unstorable, TooLarge) as error:
            results[call.call_id] = _not_started(call, str(error))
            continue
        kept = waited or Pending(call=call, purpose=Purpose.WORKFLOW, stage=Stage.AT_WORK)
        pending.append(begun(replace(kept, call=replace(kept.call, raw=None)), run_id))
    return Beginning(flows=Flows(pending=tuple(pending), starts=tuple(starts)), results=results)


def _run_id(session_id: str, call_id: str) -> str:
    """The id of a call's run: always the same for one call (CORE 16)."""
    made = child_run_id(session_id, call_id)
    return f"{RUN_PREFIX}{_PREFIX_ENDS}{made.partition(_PREFIX_ENDS)[2]}"


def _stored(value: Any) -> Any:
    """A typed argument as the log keeps it: models are plain JSON there, what it knows is itself."""
    match value:
        case BaseModel():
            return value.model_dump(mode="json")
        case dict():
            return {name: _stored(one) for name, one in value.items()}
        case list() | tuple():
            return type(value)(_stored(one) for one in value)
        case _:
            return value


def _not_started(call: Call, reason: str) -> ResultItem:
    return ResultItem(
        call.call_id,
        call.tool,
        status=ResultStatus.FAILED,
        content=f"The workflow was not started: {reason}",
        origin="framework",
        trust=Trust.SYSTEM,
    )
