"""What a button carries: the prompt and what is chosen, nothing else; what it means is looked up.

What lives here: values of buttons and forms, written and read. What does not: cards, answers.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Final

ALL_OF: Final = "*"
"""Before the name of what is chosen for every question of a card."""
FORM: Final = "?"
"""Before the name of what a form will choose once it is sent."""
PLAIN: Final = "="
"""Before the name of an option that begins as one of these marks does."""
_MARKS: Final = frozenset({ALL_OF, FORM, PLAIN})
FREE_TEXT: Final = "text"
"""The form of an answer in one's own words; it chooses no option."""
NOTE: Final = "note"
TEXT: Final = "text"
EDIT: Final = "edit."
"""Names of a form's fields; one that changes an argument has the argument's name behind it."""


@dataclass(frozen=True, slots=True)
class Pressed:
    """What was pressed: an option of a prompt ("" for an answer in words), for all of its group, or only to open a form."""

    prompt_id: str
    option_id: str
    _: KW_ONLY
    for_all: bool = False
    opens_form: bool = False


def button_value(prompt_id: str, option_id: str) -> str:
    """Write the value of a button that chooses an option, or of the form that does; "" stands for words of one's own."""
    return f"{prompt_id}:{PLAIN if option_id[:1] in _MARKS else ''}{option_id}"


def all_value(leader_id: str, choice: str) -> str:
    """Write the value of a button that approves or denies everything on a card."""
    return f"{leader_id}:{ALL_OF}{choice}"


def form_value(prompt_id: str, form: str) -> str:
    """Write the value of a button that opens a form."""
    return f"{prompt_id}:{FORM}{form}"


def read_button(value: str) -> Pressed | None:
    """Read a button's value; None for one that isn't ours."""
    prompt_id, colon, option_id = value.partition(":")
    if not colon or not prompt_id:
        return None
    head, rest = option_id[:1], option_id[1:]
    if head in (ALL_OF, FORM):
        return Pressed(prompt_id, rest, for_all=head == ALL_OF, opens_form=head == FORM) if rest else None
    return Pressed(prompt_id, rest if head == PLAIN and rest else option_id)
