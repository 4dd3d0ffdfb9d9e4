"""Modals: which views Slack opens, what a person fills in, what an app's answer does to them.

What lives here: views.open, the client's own checks, the answers to a submission. What does not: triggers (tickets.py), posting.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from bot.testing.slack.args import Args
from bot.testing.slack.blocks import check_blocks
from bot.testing.slack.refusals import Refused
from bot.testing.slack.values import Json, Modal, Workspace
from bot.testing.slack.world import World

_KNOWN: Final = {
    *("type", "title", "blocks", "close", "submit", "private_metadata", "callback_id"),
    *("clear_on_close", "notify_on_close", "external_id", "submit_disabled"),
}
_LONGEST: Final = {"private_metadata": 3_000, "callback_id": 255, "external_id": 255}


def open_view(world: World, workspace: Workspace, args: Args, *, user: str) -> Json:
    """views.open, once the trigger was found good; it was `user`'s."""
    view = args.structure("view", "invalid_arguments")
    kept = checked(view)
    for block in kept["blocks"]:
        block.setdefault("block_id", world.word(5))
        if block["type"] == "input":
            block["element"].setdefault("action_id", world.word(5))
            block.setdefault("optional", False)
            block.setdefault("dispatch_action", False)
    modal = Modal(kept | _identity(world, workspace), user=user, workspace=workspace.id)
    world.modals.append(modal)
    world.changes.tell()
    return {"view": modal.view}


def checked(view: Any) -> Json:
    """Return a view as Slack keeps it. Raises: Refused."""
    if not isinstance(view, dict) or view.get("type") != "modal":
        raise _refused("unsupported type", "type")
    for name in sorted(view.keys() - _KNOWN):
        raise _refused(f"no more fields allowed: {name}", "")
    for name, required in (("title", True), ("submit", False), ("close", False)):
        if required or name in view:
            _check_title(view.get(name), name)
    for name, most in _LONGEST.items():
        if not isinstance(view.get(name, ""), str) or len(view.get(name, "")) > most:
            raise _refused(f"must be less than {most + 1} characters", name)
    blocks = check_blocks(view.get("blocks"), modal=True)
    inputs = [block for block in blocks if block["type"] == "input"]
    if inputs and "submit" not in view:
        raise _refused("missing required field: submit", "")
    closing = {"clear_on_close": False, "notify_on_close": False}
    return {"callback_id": "", "private_metadata": "", "external_id": "", **closing, **view, "blocks": blocks}


def _check_title(text: Any, name: str) -> None:
    if not isinstance(text, dict) or text.get("type") != "plain_text" or not isinstance(text.get("text"), str):
        raise _refused("must be a text object of type plain_text", name)
    if not 1 <= len(text["text"]) <= 24:
        raise _refused("must be 1 to 24 characters", f"{name}/text")


def _identity(world: World, workspace: Workspace) -> Json:
    view_id = world.new_id("V")
    return {
        "id": view_id,
        "team_id": workspace.id,
        "state": {"values": {}},
        "hash": f"{world.clock.now_ms // 1000}.{world.word(8)}",
        "previous_view_id": None,
        "root_view_id": view_id,
        "app_id": workspace.app_id,
        "app_installed_team_id": workspace.id,
        "bot_id": workspace.bot_id,
    }


def filled(modal: Modal, given: Mapping[str, str]) -> Json:
    """Return the state of a modal with these values by block or label, as the client sends it.

    Raises: LookupError: no such field. ValueError: the client would not send it.
    """
    inputs = [block for block in modal.view["blocks"] if block["type"] == "input"]
    names = {name for block in inputs for name in (block["block_id"], block["label"]["text"])}
    if unknown := given.keys() - names:
        raise LookupError(f"no field {min(unknown)!r} in it, but {sorted(names)}")
    values: Json = {}
    for block in inputs:
        element = block["element"]
        text = given.get(block["block_id"], given.get(block["label"]["text"], element.get("initial_value", "")))
        if not text and not block.get("optional"):
            raise ValueError(f"{block['label']['text']!r} has to be filled in")
        if not element.get("min_length", 0) <= len(text) <= element.get("max_length", 3_000):
            raise ValueError(f"{block['label']['text']!r} is too short or too long")
        value = {"type": element["type"], "value": text or None}
        values[block["block_id"]] = {element["action_id"]: value}
    return {"values": values}


def answered(world: World, modal: Modal, *, ok: bool, body: bytes) -> None:
    """Do to a modal what the app's answer to its submission says; any but Slack's own leaves it there with a complaint."""
    modal.errors, modal.trouble = {}, ""
    try:
        _do(world, modal, _answer(body, ok=ok))
    except (ValueError, Refused) as error:
        modal.trouble = f"We had some trouble connecting ({error})"
    world.changes.tell()


def _answer(body: bytes, *, ok: bool) -> Json:
    if not ok:
        raise Refused("no_200")
    answer: Any = json.loads(body) if body.strip() else {}
    if not isinstance(answer, dict) or answer.keys() - {"response_action", "errors", "view"}:
        raise Refused("unknown_answer")
    return answer


def _do(world: World, modal: Modal, answer: Json) -> None:
    match answer.get("response_action"):
        case None:
            world.modals.remove(modal)
        case "clear":
            world.modals[:] = [one for one in world.modals if one.user != modal.user]
        case "errors":
            errors = answer.get("errors")
            blocks = {block["block_id"] for block in modal.view["blocks"] if block["type"] == "input"}
            if not isinstance(errors, dict) or not errors or errors.keys() - blocks:
                raise Refused("invalid_errors")
            modal.errors = errors
        case "update":
            modal.view = {**modal.view, **checked(answer.get("view"))}
        case _:
            raise Refused("unknown_response_action")


def _refused(problem: str, at: str) -> Refused:
    return Refused("invalid_arguments", messages=[f"{problem} [json-pointer:/view{f'/{at}' if at else ''}]"])
