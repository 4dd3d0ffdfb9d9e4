"""What Slack sends, read: events as JSON, clicks and commands as forms. Pure.

What lives here: bytes to events, and the answers that Slack waits for. What does not: signatures, calls, or who may do what.
"""

from __future__ import annotations

import json
import re
from urllib.parse import parse_qsl

from channels.errors import MalformedPayload
from channels.events import Author, Event, Ignored, Ingress, Message, Place, Standing
from channels.http import WebhookRequest, WebhookResponse, read_json
from channels.slack.address import SlackAddress, is_timestamp
from channels.slack.clicks import parse_clicks, parse_form
from channels.slack.reading import (
    Fields,
    Installation,
    event_installation,
    fields_of,
    id_of,
    items_of,
    mentions,
    readable,
    text_of,
)

MAX_FIELDS = 100
MAX_FILES = 20

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_HALF = Ingress((Ignored("half a character"),))
_READ_SUBTYPES = frozenset({"", "file_share", "thread_broadcast"})
_NO_COMMANDS = "Commands aren't set up here. Mention the bot in a channel, or write to it directly."


def parse(request: WebhookRequest) -> Ingress:
    """Read a proven request. Raises: MalformedPayload for bytes that are neither JSON nor a form.

    Whatever else is valid is answered 200, known or not: Slack switches off an app that refuses its events.
    """
    if request.body.lstrip()[:1] in (b"{", b"[") or "json" in (request.header("content-type") or ""):
        return _HALF if _has_half_characters(request.body) else _json(fields_of(read_json(request.body)))
    return _form(_pairs(request.body))


def _has_half_characters(body: bytes) -> bool:
    """Tell whether this is JSON with a character of which only half came: no one can carry it on, nor help it by a retry."""
    if not _SURROGATE.search(body):
        return False
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        pass
    return False


def _json(body: Fields) -> Ingress:
    kind = text_of(body, "type")
    if kind == "url_verification":
        challenge = text_of(body, "challenge")
        return Ingress((Ignored("a challenge of the address"),), WebhookResponse(200, challenge.encode()))
    if kind == "event_callback":
        return Ingress((_event(body),))
    return Ingress((Ignored(f"an envelope of type {kind[:40]!r}"),))


def _form(form: dict[str, str]) -> Ingress:
    if "payload" in form:
        content = form["payload"].encode()
        if _has_half_characters(content):
            return _HALF
        payload = fields_of(read_json(content))
        match text_of(payload, "type"):
            case "block_actions":
                return Ingress(parse_clicks(payload))
            case "view_submission":
                return parse_form(payload)
        return Ingress((Ignored(f"an interaction of type {text_of(payload, 'type')[:40]!r}"),))
    if "command" in form:
        said = json.dumps({"response_type": "ephemeral", "text": _NO_COMMANDS}).encode()
        return Ingress((Ignored("a command"),), WebhookResponse(200, said, content_type="application/json"))
    return Ingress((Ignored("a check of the certificate" if "ssl_check" in form else "a form of no known kind"),))


def _pairs(body: bytes) -> dict[str, str]:
    try:
        text = body.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise MalformedPayload("neither JSON nor a form") from None
    form = dict(pairs)
    if len(form) != len(pairs):
        raise MalformedPayload("a field of the form is repeated")
    return form


def _event(envelope: Fields) -> Event:
    event = fields_of(envelope.get("event"))
    kind = text_of(event, "type")
    if kind not in {"message", "app_mention"}:
        return Ignored(f"an event of type {kind[:40]!r}")
    installation = event_installation(envelope)
    why = _not_a_persons(event, installation)
    if why:
        return Ignored(why)
    channel, ts, user = id_of(event, "channel"), text_of(event, "ts"), id_of(event, "user")
    thread = text_of(event, "thread_ts")
    if not (installation.team and channel and user and is_timestamp(ts) and (not thread or is_timestamp(thread))):
        return Ignored("a message without its ids")
    direct = text_of(event, "channel_type") in {"im", "app_home"} or channel.startswith("D")
    raw = text_of(event, "text")
    addressed = kind == "app_mention"
    text = "\n".join(filter(None, [readable(raw, bot_user=installation.bot_user, addressed=addressed), *_files(event)]))
    if not text:
        return Ignored("a message without text")
    # One function of the thread for everything that happens in it: a reply's address is its root's.
    whole_dm = direct and channel.startswith("D") and (not thread or thread == ts)
    address = SlackAddress(installation.enterprise, installation.team, channel, None if whole_dm else thread or ts)
    return Message(
        address.encode(),
        Author(user, _name(event) or user, standing=Standing.UNKNOWN, tenancy=installation.tenancy),
        text=text,
        key=f"{installation.team}:{channel}:{ts}",
        place=Place("direct" if direct else "channel", envelope.get("is_ext_shared_channel") is True),
        mention=direct or addressed or mentions(raw, installation.bot_user),
    )


def _not_a_persons(event: Fields, installation: Installation) -> str:
    """Say why a message is not one that a person wrote just now; empty if it is.

    Our own posts come back in several shapes: with our bot's id, with the app's id, or with nothing but our user's.
    """
    subtype = event.get("subtype")
    if subtype is not None and not (isinstance(subtype, str) and subtype in _READ_SUBTYPES):
        return f"a message of subtype {str(subtype)[:40]!r}"
    if event.get("hidden"):
        return "a hidden message"
    user = text_of(event, "user")
    if installation.bot_user and user == installation.bot_user:
        return "the bot's own post"
    if event.get("app_id") and event.get("app_id") == installation.app:
        return "the bot's own post"
    if any(event.get(name) for name in ("bot_id", "app_id", "bot_profile")) or user == "USLACKBOT":
        return "a bot's post"
    if not installation.bot_user and event.get("type") == "message" and not event.get("client_msg_id"):
        # The id of a client's message is proof of a person. Without it and without knowing who we are, this may be us.
        return "a message that may be our own: no authorization says who we are"
    return ""


def _name(event: Fields) -> str:
    profile = fields_of(event.get("user_profile"))
    name = text_of(profile, "display_name") or text_of(profile, "real_name") or text_of(profile, "name")
    return " ".join(name.split())[:80]


def _files(event: Fields) -> list[str]:
    """Name the files of a message, so that a message of a file only is one."""
    files = items_of(event.get("files"))
    names = [" ".join((text_of(fields_of(file), "name") or text_of(fields_of(file), "title")).split())[:200] for file in files]
    shown = [f"[file: {name or 'unnamed'}]" for name in names[:MAX_FILES]]
    return [*shown, f"[{len(names) - MAX_FILES} more files]"] if len(names) > MAX_FILES else shown
