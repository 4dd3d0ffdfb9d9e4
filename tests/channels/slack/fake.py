"""A small strict Slack over HTTP: what the channel's own tests and its contract case talk to.

What lives here: the few methods the channel calls, their limits, and faults on demand. What does not: tests.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

NOW = 1_800_000_000_000
BOT, APP, BOT_ID = "UBOT", "A1", "B1"
TEAM, CHANNEL, ROOT = "T1", "C1", "1799999000.000100"

Json = dict[str, Any]
Fault = Callable[[web.Request], "web.StreamResponse | None"]


def refusal(error: str, *, status: int = 200, headers: dict[str, str] | None = None, **more: object) -> Fault:
    """Answer with an error instead of doing the call."""
    return lambda _request: web.json_response({"ok": False, "error": error, **more}, status=status, headers=headers)


def dropped(request: web.Request) -> web.StreamResponse | None:
    """Close the connection instead of answering."""
    assert request.transport is not None
    request.transport.close()
    return None


class MiniSlack:
    """Channels, messages, people and files of one workspace."""

    def __init__(self) -> None:
        self.now_ms = NOW
        self.calls: list[tuple[str, Json]] = []
        self.messages: dict[str, list[Json]] = defaultdict(list)
        self.files: list[Json] = []
        self.views: list[Json] = []
        self.uploads: dict[str, bytes] = {}
        self.users: dict[str, Json] = {}
        self.groups: dict[str, list[str]] = {}
        self.channels: dict[str, Json] = {CHANNEL: {"id": CHANNEL, "name": "general", "is_channel": True}}
        self.before: dict[str, list[Fault]] = defaultdict(list)
        self.after: dict[str, list[Fault]] = defaultdict(list)
        self.url = ""
        self.count = 0
        self.most_text = 13_200

    def now(self) -> int:
        return self.now_ms

    def ts(self) -> str:
        self.count += 1
        return f"{self.now_ms // 1000}.{self.count:06d}"

    def bodies(self, method: str) -> list[Json]:
        return [body for name, body in self.calls if name == method]

    def shown(self, channel: str, reader: str) -> list[str]:
        """What somebody sees, oldest first: blocks where there are any, as Slack does it."""
        messages = [*self.messages[channel], *self.messages[f"D{reader}"]]
        return [seen(message) for message in messages if message.get("only_for") in (None, reader)]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        body: Json = dict(request.query)
        if request.method == "POST":
            content = await request.text()
            body |= json.loads(content) if request.content_type == "application/json" else dict(await request.post())
        self.calls.append((method, body))
        for fault in self.before[method][:1]:
            self.before[method].pop(0)
            answer = fault(request)
            if answer is not None:
                return answer
            await asyncio.sleep(0)
            raise asyncio.CancelledError
        if request.headers.get("Authorization") != "Bearer xoxb-test":
            return web.json_response({"ok": False, "error": "invalid_auth"})
        result = getattr(self, "do_" + method.replace(".", "_"))(body)
        if isinstance(result, str):
            return web.json_response({"ok": False, "error": result})
        for fault in self.after[method][:1]:
            self.after[method].pop(0)
            answer = fault(request)
            if answer is not None:
                return answer
        return web.json_response({"ok": True} | result)

    async def take_upload(self, request: web.Request) -> web.StreamResponse:
        self.uploads[request.match_info["id"]] = await request.read()
        return web.Response(text="OK")

    def do_auth_test(self, body: Json) -> Json:
        return {"user_id": BOT, "bot_id": BOT_ID, "team_id": TEAM}

    def do_chat_postMessage(self, body: Json) -> Json | str:  # noqa: N802 - Slack's name
        self.now_ms += 1_100
        if body["channel"] not in self.channels and body["channel"] not in self.messages:
            return "channel_not_found"
        why = refused(body, most=self.most_text)
        if why:
            return why
        message = {"ts": self.ts(), "user": BOT, "bot_id": BOT_ID, "app_id": APP, **body}
        self.messages[body["channel"]].append(message)
        return {"ts": message["ts"], "channel": body["channel"]}

    def do_chat_postEphemeral(self, body: Json) -> Json | str:  # noqa: N802 - Slack's name
        why = refused(body, most=self.most_text)
        if why:
            return why
        message = {"ts": self.ts(), "only_for": body["user"], **body}
        self.messages[body["channel"]].append(message)
        return {"message_ts": message["ts"]}

    def do_conversations_open(self, body: Json) -> Json | str:
        direct = f"D{body['users']}"
        self.messages[direct] = self.messages[direct]
        return {"channel": {"id": direct}}

    def do_views_open(self, body: Json) -> Json:
        self.views.append(body)
        return {"view": {"id": "V1"}}

    def do_chat_update(self, body: Json) -> Json | str:
        self.now_ms += 1_300
        found = [m for m in self.messages[body["channel"]] if m["ts"] == body["ts"] and "only_for" not in m]
        if not found:
            return "message_not_found"
        if len(body["text"].encode()) > 4_000:
            return "msg_too_long"
        old = {block["block_id"] for block in found[0]["blocks"]}
        if old & {block["block_id"] for block in body["blocks"]} and found[0]["blocks"] != body["blocks"]:
            return "invalid_blocks"
        why = refused(body, most=self.most_text)
        if why:
            return why
        found[0] |= {"text": body["text"], "blocks": body["blocks"], "edited": {"ts": self.ts()}}
        return {"ts": body["ts"], "channel": body["channel"]}

    def do_conversations_replies(self, body: Json) -> Json:
        return self._page(body, lambda m: m["ts"] == body["ts"] or m.get("thread_ts") == body["ts"], newest_first=False)

    def do_conversations_history(self, body: Json) -> Json:
        return self._page(body, lambda m: not m.get("thread_ts"), newest_first=True)

    def _page(self, body: Json, wanted: Callable[[Json], bool], *, newest_first: bool) -> Json:
        self.now_ms += 1_300
        low, high = body.get("oldest", "0"), body.get("latest", "9999999999.999999")
        found = [
            {key: value for key, value in message.items() if key != "only_for"}
            for message in self.messages[body["channel"]]
            if "only_for" not in message and wanted(message) and low <= message["ts"] <= high
        ]
        found = found[::-1] if newest_first else found
        at, size = int(body.get("cursor", "0")), int(body["limit"])
        more = at + size < len(found)
        cursor = {"next_cursor": str(at + size)} if more else {"next_cursor": ""}
        return {"messages": found[at : at + size], "has_more": more, "response_metadata": cursor}

    def do_users_info(self, body: Json) -> Json | str:
        return {"user": self.users[body["user"]]} if body["user"] in self.users else "user_not_found"

    def do_chat_getPermalink(self, body: Json) -> Json | str:  # noqa: N802 - Slack's name
        if body["channel"] not in self.channels:
            return "channel_not_found"
        link = f"https://harbour.slack.com/archives/{body['channel']}/p{body['message_ts'].replace('.', '')}"
        return {"channel": body["channel"], "permalink": link}

    def do_usergroups_users_list(self, body: Json) -> Json | str:
        return {"users": self.groups[body["usergroup"]]} if body["usergroup"] in self.groups else "no_such_subteam"

    def do_conversations_info(self, body: Json) -> Json | str:
        return {"channel": self.channels[body["channel"]]} if body["channel"] in self.channels else "channel_not_found"

    def do_files_getUploadURLExternal(self, body: Json) -> Json:  # noqa: N802 - Slack's name
        number = f"F{len(self.files) + len(self.uploads) + 1}"
        return {"file_id": number, "upload_url": f"{self.url}upload/{number}"}

    def do_files_completeUploadExternal(self, body: Json) -> Json:  # noqa: N802 - Slack's name
        files = json.loads(body["files"]) if isinstance(body["files"], str) else body["files"]
        for file in files:
            shared = {"name": file["title"], "content": self.uploads[file["id"]], "channel": body["channel_id"]}
            self.files.append(shared | {"thread_ts": body.get("thread_ts")})
        return {"files": files}


@asynccontextmanager
async def mini_slack() -> AsyncIterator[MiniSlack]:
    """Serve one on a free port."""
    fake = MiniSlack()
    app = web.Application(client_max_size=8 * 1024 * 1024)
    app.router.add_route("*", "/api/upload/{id}", fake.take_upload)
    app.router.add_route("*", "/api/{method}", fake.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}/api/"
        yield fake
    finally:
        await runner.cleanup()


_TEXTS = {"plain_text", "mrkdwn"}
_BLOCKS = {"divider", "section", "context", "actions", "markdown", "rich_text"}


def refused(body: Json, *, most: int) -> str:
    """Say why Slack would refuse this message; empty if it would not."""
    blocks: list[Json] = body.get("blocks") or []
    if not blocks and not body.get("text", "").strip():
        return "no_text"
    if len(body.get("text", "")) > 40_000:
        return "msg_too_long"
    if len(blocks) > 50 or any(block["type"] not in _BLOCKS for block in blocks):
        return "invalid_blocks"
    if len({block["block_id"] for block in blocks}) != len(blocks):
        return "invalid_blocks"
    if any(_bad(block) for block in blocks):
        return "invalid_blocks"
    return "msg_blocks_too_long" if sum(len(seen({"blocks": [block]})) for block in blocks) > most else ""


def _bad(block: Json) -> bool:
    match block["type"]:
        case "section":
            return not 1 <= len(block["text"]["text"]) <= 3_000
        case "markdown":
            return not 1 <= len(block["text"]) <= 12_000
        case "context":
            texts = [element["text"] for element in block["elements"]]
            return not 1 <= len(texts) <= 10 or any(not 1 <= len(text) <= 2_000 for text in texts)
        case "actions":
            ids = {element["action_id"] for element in block["elements"]}
            return not 1 <= len(ids) == len(block["elements"]) <= 25 or any(map(_bad_element, block["elements"]))
        case "divider":
            return False
        case _:
            texts = [part["text"] for element in block["elements"] for part in element["elements"]]
            return not texts or any(not text for text in texts)


def _bad_element(element: Json) -> bool:
    if element["type"] == "button":
        return len(element["text"]["text"]) > 75 or len(element["value"]) > 2_000
    options = element["options"]
    values = {option["value"] for option in options}
    return not 1 <= len(values) <= len(options) <= 100 or any(
        not 1 <= len(option["text"]["text"]) <= 75
        or len(option["value"]) > 150
        or ("description" in option and not 1 <= len(option["description"]["text"]) <= 75)
        for option in options
    )


def _shown(element: Json) -> list[str]:
    if element["type"] != "static_select":
        return [element["text"]["text"]]
    texts = [part for option in element["options"] for part in (option["text"], option.get("description"))]
    return [element["placeholder"]["text"], *(text["text"] for text in texts if text is not None)]


def seen(message: Json) -> str:
    """The text that Slack shows of a message."""
    lines: list[str] = []
    for block in message.get("blocks") or []:
        match block["type"]:
            case "section":
                lines.append(block["text"]["text"])
            case "markdown":
                lines.append(block["text"])
            case "context":
                lines += [element["text"] for element in block["elements"]]
            case "actions":
                lines += [text for element in block["elements"] for text in _shown(element)]
            case "divider":
                pass
            case _:
                lines += [part["text"] for element in block["elements"] for part in element["elements"]]
    return "\n".join(lines) if lines else str(message.get("text", ""))
