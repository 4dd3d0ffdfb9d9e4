"""Whether the process is alive and takes work; says no more than that.

What lives here: /healthz and /readyz. What does not: diagnosis (`moorings doctor`).
"""

from __future__ import annotations

from aiohttp import web

from bot.session_api import RunningApp


class HealthRoutes:
    """Two probes that need no token."""

    def __init__(self, running: RunningApp) -> None:
        self._running = running
        self._stopping = False

    def routes(self) -> list[web.RouteDef]:
        """List the routes."""
        return [web.get("/healthz", self.healthz), web.get("/readyz", self.readyz)]

    async def stop(self, _app: web.Application) -> None:
        """Say no from now on: the server drains."""
        self._stopping = True

    async def healthz(self, _request: web.Request) -> web.Response:
        """Answer as long as the event loop does."""
        return web.json_response({"status": "ok"})

    async def readyz(self, _request: web.Request) -> web.Response:
        """Answer whether work would be taken."""
        ready = not self._stopping and await self._running.ready()
        return web.json_response({"status": "ok" if ready else "unavailable"}, status=200 if ready else 503)
