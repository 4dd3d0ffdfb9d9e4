"""Values of the environment that an author's code names, read when they are needed and hidden wherever they are shown.

What lives here: `env("NAME")` and the type it returns. What does not: MOORINGS_ variables (settings.py), masks of arguments.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from bot.errors import VariableMissing

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, repr=False)
class SecretText:
    """A text that no repr, log or error shows; `reveal` gives it to whoever needs it.

    Of `env("NAME")`, `name` is the variable, which is read by each `reveal`: a module may be imported without it.
    """

    name: str = ""
    _: KW_ONLY
    text: str | None = field(default=None, hash=False)

    def __repr__(self) -> str:
        return f"SecretText({self.name or '•••'})"

    def __str__(self) -> str:
        return f"<{self.name or 'a secret'}>"

    def reveal(self, environ: Mapping[str, str] | None = None) -> str:
        """Return the text itself. Raises: VariableMissing."""
        if self.text is not None:
            return self.text
        value = (os.environ if environ is None else environ).get(self.name, "").strip()
        if not value:
            raise VariableMissing(self.name)
        return value

    def problem(self) -> str | None:
        """Say what is missing, for the checks at start; None if nothing is."""
        try:
            self.reveal()
        except VariableMissing as error:
            return str(error)
        return None


def env(name: str) -> SecretText:
    """Name an environment variable that holds a secret, or anything else that isn't written in code.

    Nothing is read yet: a bot that needs it and doesn't find it says so when it starts.

    Raises:
        ValueError: It is no name of a variable.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"env({name!r}) is no name of an environment variable")
    return SecretText(name)


def hidden(value: SecretText | str | None) -> SecretText | None:
    """Hide a text that an author gave in clear."""
    return SecretText(text=value) if isinstance(value, str) else value


def revealed(value: SecretText | str) -> str:
    """Return what a value that may be in the environment says. Raises: VariableMissing."""
    return value if isinstance(value, str) else value.reveal()
