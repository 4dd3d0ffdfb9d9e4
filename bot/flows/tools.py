"""A workflow offered to a model as a tool.

What lives here: the declaration. What does not: starting a run for a call (begin.py), the workflow itself (durable_core).
"""

from __future__ import annotations

import re
from typing import Final, Literal

from bot.approvals import Approval
from bot.errors import BadTool
from bot.parameters import arguments_model
from bot.policies import When
from bot.tools import Effect, Interrupt, Tool
from durable_core.context import WorkflowContext
from durable_core.registry import Workflow

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def workflow_tool(
    workflow: Workflow,
    *,
    approval: Approval | When | None = None,
    untrusted: Literal["allow"] | None = None,
) -> Tool:
    """Offer a workflow as a tool; `Agent(tools=[deploy])` does the same without options.

    A call starts a run of its own, once, and its turn waits for the end. Schema and description are read from the function.

    Args:
        workflow: What `@workflow` made.
        approval: Who has to say yes before it starts, and when, as for ``@tool``.
        untrusted: ``allow`` lets it start unasked after untrusted content was read.

    Raises:
        BadTool: It can't be offered as declared.
    """
    if not _NAME.fullmatch(workflow.name):
        raise BadTool(workflow.name, "the name must be 1 to 64 ASCII letters, digits, '_' or '-'")
    found = arguments_model(workflow.name, workflow.fn, context=WorkflowContext)
    gate = approval if approval is None or isinstance(approval, Approval) else Approval(when=approval)
    made = Tool(
        name=workflow.name,
        description=found.description,
        function=workflow.fn,
        arguments=found.model,
        schema=found.schema,
        effect=Effect.WRITE,
        approval=gate,
        on_interrupt=Interrupt.RERUN,
        asks_after_untrusted=untrusted != "allow",
        secret=found.secret,
        workflow=workflow,
    )
    if gate and (problems := gate.problems(made.parameters, masked=made.secret)):
        raise BadTool(workflow.name, "; ".join(problems))
    return made
