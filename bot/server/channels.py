"""Webhooks of channels: bytes in, the channel's own answer out.

What lives here: the route and the size limit. What does not: signatures and formats, which are the channel's.
"""

from __future__ import annotations

from aiohttp import web

from bot.server.bodies import read_bytes
from bot.server.limits import Limits
from bot.session_api import RunningApp
from channels.http import WebhookRequest


class ChannelRoutes:
    """POST /channels/NAME/…, for every channel of the bot."""

    def __init__(self, running: RunningApp, *, limits: Limits) -> None:
        self._running = running
        self._limits = limits

    def routes(self) -> list[web.RouteDef]:
        """List the routes."""
        return [
            web.post("/channels/{name:[A-Za-z0-9_-]+}", self.receive),
            web.post("/channels/{name:[A-Za-z0-9_-]+}/{rest:.*}", self.receive),
        ]

    async def receive(self, request: web.Request) -> web.Response:
        """Hand the request over as it came; a signature covers bytes."""
        body = await read_bytes(request, limit=self._limits.body, seconds=self._limits.body_time)
        answer = await self._running.ingress(
            request.match_info["name"],
            WebhookRequest(
                request.method,
                request.rel_url.raw_path,
                headers=tuple(request.headers.items()),
                body=body,
                query=dict(request.query),
            ),
        )
        return web.Response(status=answer.status, body=answer.body, headers={"Content-Type": answer.content_type})
