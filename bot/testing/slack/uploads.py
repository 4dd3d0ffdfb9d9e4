"""Files, in Slack's three steps: ask where, put the bytes there, say where they belong.

What lives here: those steps. What does not: the server's routes.
"""

from __future__ import annotations

from bot.testing.slack.args import Args
from bot.testing.slack.chat import writable
from bot.testing.slack.refusals import Refused
from bot.testing.slack.shapes import file_json
from bot.testing.slack.values import Json, Post, Workspace
from bot.testing.slack.world import World


def ask_where(world: World, workspace: Workspace, args: Args, *, base: str) -> Json:
    """files.getUploadURLExternal."""
    name = args.required("filename")
    length = args.integer("length", 0, most=1_000_000_000, error="invalid_arguments")
    if not length:
        raise Refused("invalid_arguments", messages=["missing required field: length"])
    file_id = world.new_id("F")
    world.files[file_id] = {"name": name, "length": length, "team": workspace.id, "key": world.word(16)}
    return {"upload_url": f"{base}/upload/v1/{file_id}/{world.files[file_id]['key']}", "file_id": file_id}


def put(world: World, file_id: str, key: str, content: bytes) -> bool:
    """Take the bytes of an upload; only what was announced is taken."""
    file = world.files.get(file_id)
    if file is None or file["key"] != key or "content" in file or len(content) != file["length"]:
        return False
    file["content"] = content
    return True


def complete(world: World, workspace: Workspace, args: Args) -> Json:
    """files.completeUploadExternal."""
    given = args.structure("files", "invalid_arguments")
    if not isinstance(given, list) or not given or not all(isinstance(item, dict) and "id" in item for item in given):
        raise Refused("invalid_arguments", messages=["missing required field: files"])
    now = world.clock.now_ms // 1000
    files: list[Json] = []
    for item in given:
        file = world.files.get(item["id"])
        if file is None or file["team"] != workspace.id or "content" not in file or file.get("shared"):
            raise Refused("file_not_found")
        title, size = item.get("title", ""), file["length"]
        files.append(file_json(item["id"], name=file["name"], title=title, size=size, user=workspace.bot_user, created=now))
    if args.has("channel_id"):
        channel = writable(world, workspace, Args({"channel": args.text("channel_id")}), by_id=True)
        thread_ts = args.text("thread_ts") or None
        if thread_ts is not None and thread_ts not in world.posts[channel.id]:
            raise Refused("invalid_thread_ts")
        world.add(
            Post(
                channel.id,
                world.next_ts(),
                user=workspace.bot_user,
                text=args.text("initial_comment"),
                bot_id=workspace.bot_id,
                app_id=workspace.app_id,
                thread_ts=thread_ts,
                files=files,
                team=workspace.id,
            )
        )
    for item in given:
        world.files[item["id"]]["shared"] = True
    return {"files": files}
