"""How the Web API says no.

What lives here: the error of a call and its JSON form. What does not: when it is raised (methods, blocks).
"""

from __future__ import annotations

from collections.abc import Sequence

from bot.testing.slack.values import Json


class Refused(Exception):
    """A call that Slack answers with `"ok": false`; `messages` say which argument is at fault."""

    def __init__(self, error: str, *, messages: Sequence[str] = (), needed: str = "", provided: str = "") -> None:
        super().__init__(error)
        self.error = error
        self.messages = tuple(messages)
        self.needed = needed
        self.provided = provided

    def answer(self) -> Json:
        """Return the body of the answer."""
        body: Json = {"ok": False, "error": self.error}
        if self.needed:
            body |= {"needed": self.needed, "provided": self.provided}
        if self.messages:
            if self.error == "invalid_blocks":
                body["errors"] = list(self.messages)
            body["response_metadata"] = {"messages": [f"[ERROR] {message}" for message in self.messages]}
        return body
