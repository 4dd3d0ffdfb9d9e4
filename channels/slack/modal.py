"""A form as a modal view.

What lives here: pure building within Slack's limits. What does not: opening it, or reading what was sent (`clicks.py`).
"""

from __future__ import annotations

from channels.cards import MAX_FIELD_VALUE, Form, FormField
from channels.slack.blocks import Block, one_line, plain, sections, short
from channels.slack.clicks import FORM, action_id, form_metadata

# https://docs.slack.dev/reference/views/modal-views
MAX_TITLE = 24
MAX_LABEL = 2_000
MAX_QUESTION = 1_500


def modal(form: Form, *, address: str, question: str) -> Block:
    """Draw a form. It carries the value of its click and the address, and the question above its fields."""
    asked = one_line(question)
    return {
        "type": "modal",
        "callback_id": FORM,
        "private_metadata": form_metadata(form.value, address),
        "title": plain(short(form.title, MAX_TITLE) or "Answer"),
        "submit": plain(short(form.submit, MAX_TITLE) or "Send"),
        "close": plain("Cancel"),
        "blocks": [
            *sections(asked if len(asked) <= MAX_QUESTION else f"{asked[:MAX_QUESTION]}… (all of it is on the card)"),
            *(_input(number, one) for number, one in enumerate(form.fields, start=1)),
        ],
    }


def _input(number: int, field: FormField) -> Block:
    element: Block = {
        "type": "plain_text_input",
        "action_id": action_id(number),
        "multiline": field.multiline or "\n" in field.value,
        "max_length": MAX_FIELD_VALUE,
    }
    if field.value:
        element["initial_value"] = field.value
    return {
        "type": "input",
        "block_id": field.name,
        "label": plain(one_line(field.label)[:MAX_LABEL] or field.name),
        "element": element,
        "optional": not field.required,
    }
