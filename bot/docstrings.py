"""A function's docstring, as far as a model is told of it.

What lives here: the description and the parameters of a Google style docstring. What does not: schemas (tools.py).
"""

from __future__ import annotations

import inspect
import re

_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Returns?|Yields?|Raises|Notes?|Examples?|Attributes|Todo|Warnings?|See Also):\s*$"
)
_PARAMETER = re.compile(r"^\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)$")


def describe(function: object) -> tuple[str, dict[str, str]]:
    """Return the text before the first section, and the descriptions of parameters by name."""
    lines = (inspect.getdoc(function) or "").splitlines()
    start = next((number for number, line in enumerate(lines) if _SECTION.match(line)), len(lines))
    return "\n".join(lines[:start]).strip(), _parameters(lines[start:])


def _parameters(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    inside = False
    name = ""
    margin: int | None = None
    for line in lines:
        if section := _SECTION.match(line):
            inside = section.group(1) in {"Args", "Arguments", "Parameters"}
            margin = None
            continue
        if not inside or not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        margin = indent if margin is None else margin
        if indent <= margin and (parameter := _PARAMETER.match(line.strip())):
            name = parameter.group("name")
            found[name] = parameter.group("text").strip()
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found
