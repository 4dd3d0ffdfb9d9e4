"""What an attempt looks like from outside: the page for the stage it is at.

What lives here: attempts to pages. What does not: how a page looks (bot/server/pages/), what changes an attempt (signins.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from bot.signins.attempt import MINUTE_MS, Attempt, Proof, Stage
from bot.signins.keeping import Kept
from bot.signins.page import Page, PageKind
from bot.signins.secrets import new_secret

NOT_FOUND: Final = Page(kind=PageKind.NOT_FOUND)
_OF_FAULT: Final = {"other_person": PageKind.OTHER_PERSON, "expired": PageKind.EXPIRED, "over": PageKind.USED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a page says beside the attempt itself."""

    service: str
    platform: str = ""
    """The chat platform's name."""
    thread_url: str = ""


def named(channel: str) -> str:
    """Name a channel as people do."""
    return {"api": "the API", "console": "the console"}.get(channel, channel.capitalize())


def confirm(kept: Kept, scene: Scene, *, path: str, problem: str = "") -> Page:
    """Draw the page that a link opens."""
    attempt = kept.attempt
    return replace(
        _about(attempt, scene, PageKind.CONFIRM),
        action=path,
        decline=f"{path}/decline",
        press=new_secret(),
        proof=attempt.proof.value if attempt.stage is not Stage.STARTED else "",
        proof_name=scene.platform,
        problem=problem,
        expires_at=attempt.valid_until,
        minutes=max(1, -(-(attempt.valid_until - kept.at) // MINUTE_MS)),
    )


def leaving(attempt: Attempt, scene: Scene, *, url: str, to: str) -> Page:
    """Draw the page that leaves for another site."""
    return replace(_about(attempt, scene, PageKind.PROGRESS), go=url, go_name=to)


def shown(kept: Kept, scene: Scene) -> Page:
    """Draw what came of an attempt, for the browser that it is bound to."""
    attempt = kept.attempt
    page = _about(attempt, scene, PageKind.PROGRESS)
    match attempt.stage:
        case Stage.CONNECTED:
            weak = attempt.proof is Proof.CODE
            return replace(page, kind=PageKind.CONNECTED, account=attempt.account, weak=weak, note=attempt.note)
        case Stage.DECLINED:
            return replace(page, kind=PageKind.DECLINED, reason=attempt.reason)
        case Stage.FAILED:
            kind = _OF_FAULT.get(attempt.fault, PageKind.FAILED)
            again = attempt.fault not in {"scopes", "over"}
            return replace(page, kind=kind, reason=attempt.reason, again=again)
    if kept.over and attempt.stage not in {Stage.RETURNED, Stage.EXCHANGING}:
        return expired(attempt, scene)
    return page


def expired(attempt: Attempt, scene: Scene) -> Page:
    """Draw that it took too long."""
    return replace(_about(attempt, scene, PageKind.EXPIRED), again=True)


def other_browser(attempt: Attempt, scene: Scene) -> Page:
    """Draw that another browser has begun this; nothing of what came of it is told."""
    return Page(kind=PageKind.OTHER_BROWSER, agent=attempt.agent, service=scene.service, again=True)


def used(attempt: Attempt, scene: Scene, reason: str) -> Page:
    """Draw that nothing waits for this any more."""
    return replace(_about(attempt, scene, PageKind.USED), reason=reason)


def failed(attempt: Attempt, scene: Scene, reason: str) -> Page:
    """Draw that something went wrong which the attempt survives: the same link may be tried again."""
    return replace(_about(attempt, scene, PageKind.FAILED), reason=reason, again=True)


def _about(attempt: Attempt, scene: Scene, kind: PageKind) -> Page:
    return Page(
        kind=kind,
        agent=attempt.agent,
        person=attempt.person,
        service=scene.service,
        scopes=attempt.scopes,
        tool=attempt.tool,
        place=named(attempt.channel) if attempt.channel else "",
        thread_url=scene.thread_url,
        shared=attempt.shared,
    )
