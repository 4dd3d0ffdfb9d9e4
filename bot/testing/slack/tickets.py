"""What an interaction gives the app for a while: a trigger for a modal, a URL to answer at.

What lives here: how long and how often they may be used, and what a response does. What does not: interactions (payloads.py).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from bot.testing.slack.blocks import check_blocks
from bot.testing.slack.refusals import Refused
from bot.testing.slack.values import Json, Post, Workspace
from bot.testing.slack.world import World

TRIGGER_MS: Final = 3_000
RESPONSE_MS: Final = 30 * 60 * 1000
RESPONSE_USES: Final = 5


@dataclass(slots=True)
class _Ticket:
    workspace: Workspace
    _: KW_ONLY
    user: str
    channel: str
    thread_ts: str | None
    post: Post | None
    until: int
    uses: int = RESPONSE_USES


@dataclass(slots=True)
class Tickets:
    """Triggers and response URLs that are out."""

    world: World
    base: str = ""
    _triggers: dict[str, tuple[str, int | None]] = field(default_factory=dict)
    """Whose it is, and until when it is good; None once it was used."""
    _responses: dict[str, _Ticket] = field(default_factory=dict)

    def trigger(self, user: str = "") -> str:
        """Make a trigger_id for somebody; it is good for 3 s and once."""
        world = self.world
        trigger = f"{world.digits(13)}.{world.digits(13)}.{world.hex(32)}"
        self._triggers[trigger] = (user, world.clock.now_ms + TRIGGER_MS)
        return trigger

    def use_trigger(self, trigger: str) -> str:
        """Take a trigger, and return whose it was. Raises: Refused."""
        if trigger not in self._triggers:
            raise Refused("invalid_trigger_id")
        user, until = self._triggers[trigger]
        if until is None:
            raise Refused("exchanged_trigger_id")
        if self.world.clock.now_ms > until:
            raise Refused("expired_trigger_id")
        self._triggers[trigger] = (user, None)
        return user

    def response_url(
        self, workspace: Workspace, kind: str, *, user: str, channel: str, thread_ts: str | None, post: Post | None
    ) -> str:
        """Make a response_url; it is good for 30 min and five times."""
        path = f"/{kind}/{workspace.id}/{self.world.digits(14)}/{self.world.word(24)}"
        until = self.world.clock.now_ms + RESPONSE_MS
        self._responses[path] = _Ticket(workspace, user=user, channel=channel, thread_ts=thread_ts, post=post, until=until)
        return self.base + path

    def respond(self, path: str, body: Json) -> None:
        """Do what an app asks for at a response_url. Raises: Refused."""
        ticket = self._responses.get(path)
        if ticket is None or self.world.clock.now_ms > ticket.until:
            raise Refused("expired_url")
        if ticket.uses <= 0:
            raise Refused("used_url")
        ticket.uses -= 1
        if body.get("delete_original"):
            self._original(ticket, remove=True)
            return
        blocks = check_blocks(body["blocks"]) if body.get("blocks") else []
        text = str(body.get("text", ""))
        if not text and not blocks:
            raise Refused("no_text")
        if body.get("replace_original"):
            self.world.change(self._original(ticket), text=text, blocks=blocks, metadata=None)
            return
        self.say(ticket.workspace, body, text=text, blocks=blocks, ticket=ticket)

    def say(self, workspace: Workspace, body: Json, *, text: str, blocks: list[Json], ticket: _Ticket) -> None:
        """Post a response: to the one who asked, unless it is for the channel."""
        everybody = body.get("response_type") == "in_channel"
        self.world.add(
            Post(
                ticket.channel,
                self.world.next_ts(),
                user=workspace.bot_user,
                text=text,
                bot_id=workspace.bot_id,
                app_id=workspace.app_id,
                blocks=blocks,
                thread_ts=body.get("thread_ts") or ticket.thread_ts,
                only_for=None if everybody else ticket.user,
                team=workspace.id,
            )
        )

    def answer_command(self, url: str, body: Json) -> None:
        """Show what an app answered a command with at once."""
        ticket = self._responses[url.removeprefix(self.base)]
        blocks = check_blocks(body["blocks"]) if body.get("blocks") else []
        self.say(ticket.workspace, body, text=str(body.get("text", "")), blocks=blocks, ticket=ticket)

    def _original(self, ticket: _Ticket, *, remove: bool = False) -> Post:
        post = ticket.post
        there = post is not None and (post in self.world.whispers or post.ts in self.world.posts[post.channel])
        if post is None or not there:
            raise Refused("message_not_found")
        if remove:
            self.world.remove(post)
        return post
