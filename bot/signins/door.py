"""Who may come in: a link, a browser and a state, each held against the attempt that it names.

What lives here: finding the attempt, and every reason not to go on with it. What does not: going on (leaving.py, signins.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from bot.cards import prompt_body, settled_words
from bot.connections.connections import Connections
from bot.signins import drawn
from bot.signins.attempt import AWAY, KEPT_MS, Attempt, Stage
from bot.signins.drawn import NOT_FOUND, Scene
from bot.signins.driving import Driving
from bot.signins.exchange import failed
from bot.signins.keeping import Attempts, Kept
from bot.signins.page import Page
from bot.signins.proofs import Proofs, channel_of
from bot.signins.secrets import hashed, new_secret, parted, same
from bot.signins.settle import Settling
from bot.signins.values import Cookie, Done
from durable_core.errors import ContentGone, NotFound

_STALE: Final = "This answer belongs to an earlier try. Go on where you pressed last, or press Connect in the conversation again."
_FORGOTTEN: Final = "What this was for has been deleted. Nothing was connected."
_BUSY: Final = frozenset({Stage.RETURNED, Stage.EXCHANGING, Stage.POLLING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Checks what a browser brings."""

    attempts: Attempts
    connections: Connections
    proofs: Proofs
    settling: Settling
    driving: Driving
    public_url: Callable[[], str]

    async def linked(self, token: str) -> Kept | None:
        """Find the attempt that a link is for."""
        attempt_id, secret = parted(token)
        kept = await self.attempts.find(attempt_id)
        return kept if kept is not None and same(kept.attempt.link_hash, "link", attempt_id, secret) else None

    async def in_the_way(self, kept: Kept, cookies: Mapping[str, str], *, press: str = "") -> Page | None:
        """Return what is shown in place of going on; None where nothing is in the way. Nothing is changed.

        `press` names the loading of a page whose button was pressed: pressed twice, the first answer and its cookie may be lost.
        """
        attempt = kept.attempt
        scene = await self.scene(attempt)
        twice = attempt.stage in AWAY and same(attempt.press_hash, "press", attempt.attempt_id, press)
        if attempt.browser_hash and not twice and not self.bound(attempt, cookies):
            return drawn.other_browser(attempt, scene)
        if attempt.ended or attempt.stage in _BUSY:
            return drawn.shown(kept, scene)
        over = await self._over(attempt)
        if over:
            return drawn.used(attempt, scene, over)
        return drawn.expired(attempt, scene) if kept.over else None

    async def came_back(
        self, params: Mapping[str, str], cookies: Mapping[str, str], stage: Stage, *, connection: str = ""
    ) -> Kept | Done | Page:
        """Find the attempt that a state is of, if it is its turn; else what is shown. The state is still to be taken."""
        attempt_id, secret = parted(params.get("state", ""))
        kept = await self.attempts.find(attempt_id)
        if kept is None or (connection and kept.attempt.connection != connection):
            return NOT_FOUND
        attempt = kept.attempt
        scene = await self.scene(attempt)
        if not self.bound(attempt, cookies):  # whoever got hold of the address alone learns nothing and changes nothing
            return drawn.other_browser(attempt, scene)
        if same(attempt.spent_hash, "state", attempt_id, secret):
            return Done(attempt_id=attempt_id)
        if attempt.stage is not stage or not same(attempt.state_hash, "state", attempt_id, secret):
            return drawn.failed(attempt, scene, _STALE)
        spent = replace(attempt, state_hash="", spent_hash=attempt.state_hash)
        if kept.over:
            reason = f"It took more than ten minutes. Press Connect in the conversation for a fresh link to {scene.service}."
            await self.driving.ended(kept, failed(spent, "expired", reason))
            return Done(attempt_id=attempt_id)
        over = await self._over(attempt)
        if over:
            await self.driving.ended(kept, failed(spent, "over", over))
            return Done(attempt_id=attempt_id)
        return kept

    async def scene(self, attempt: Attempt) -> Scene:
        """Return what a page says beside the attempt."""
        return Scene(
            service=self.title(attempt),
            platform=drawn.named(channel_of(attempt.principal)),
            thread_url=await self.proofs.thread_url(attempt.channel, attempt.address),
        )

    def title(self, attempt: Attempt) -> str:
        """Name the account as people do."""
        connection = self.connections.by_name.get(attempt.connection)
        return attempt.connection if connection is None else connection.title

    # ── browsers ──

    def bound(self, attempt: Attempt, cookies: Mapping[str, str]) -> bool:
        """Tell whether a browser is the one in which an attempt was begun."""
        given = cookies.get(self.cookie_name(attempt.attempt_id), "")
        return same(attempt.browser_hash, "browser", attempt.attempt_id, given)

    def binding(self, attempt: Attempt, cookies: Mapping[str, str]) -> tuple[Attempt, Cookie | None]:
        """Bind an attempt to the browser that goes on with it, by a cookie that is to be set; bound already, it stays so."""
        if self.bound(attempt, cookies):
            return attempt, None
        secret = new_secret()
        cookie = Cookie(name=self.cookie_name(attempt.attempt_id), value=secret, seconds=KEPT_MS // 1_000)
        return replace(attempt, browser_hash=hashed("browser", attempt.attempt_id, secret)), cookie

    def cookie_name(self, attempt_id: str) -> str:
        """Name an attempt's cookie. `__Host-` needs https; on plain http, which is this machine's own, there is none."""
        prefix = "__Host-" if self.public_url().startswith("https://") else ""
        return f"{prefix}moorings-{attempt_id}"

    async def _over(self, attempt: Attempt) -> str:
        """Say how what waits for an attempt was settled; "" while it waits."""
        try:
            prompt = await self.settling.over(attempt)
        except (NotFound, ContentGone):
            return _FORGOTTEN
        return "" if prompt is None else settled_words(prompt, prompt_body(prompt))
