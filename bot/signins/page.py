"""What a page under /connect/ says, as a value.

What lives here: `Page` and the kinds there are. What does not: how a page looks (bot/server/pages/), what leads to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class PageKind(StrEnum):
    """What a page is about; its address stays the same while this changes."""

    CONFIRM = "confirm"
    """The link was opened: says what would happen, with a form (POST to `action`) and one to decline (POST to `decline`)."""
    PROGRESS = "progress"
    """Something goes on by itself: leaving for `go` (a meta refresh and a link), or with no `go` this page again in 2 s."""
    CONNECTED = "connected"
    """Done, and kept: `account` says which account it is."""
    DECLINED = "declined"
    """The person said no, here or at the provider; `reason` says in words what came of it."""
    EXPIRED = "expired"
    """The link, or the way through the provider, took longer than it is good for; nothing was connected."""
    USED = "used"
    """What was asked for is settled already (connected elsewhere, stopped, declined); `reason` says which."""
    OTHER_BROWSER = "other_browser"
    """The link was begun in another browser, which alone may go on; nothing was bound to this one."""
    OTHER_PERSON = "other_person"
    """Whoever signed in here isn't the one whom the link is for; nothing was connected."""
    FAILED = "failed"
    """It went wrong; `reason` says what and whose fault, nothing was connected, a fresh link helps where `again`."""
    NOT_FOUND = "not_found"
    """No such link: mistyped, cut off, or of long ago. It tells nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page. Every text is plain, for escaping; what is "" or empty is not known or not to be told, and left out.

    A browser that isn't bound to the sign-in sees of it only what the confirm page tells.
    """

    kind: PageKind
    agent: str = ""
    """Who asks: the agent's name, as people know it ("Helper")."""
    person: str = ""
    """For whom: the requester's name in the conversation."""
    service: str = ""
    """The connection's title: "GitHub"."""
    scopes: tuple[str, ...] = ()
    """What it may do there, in the provider's words."""
    tool: str = ""
    """What the agent wants to do with it: a tool's name ("open_issue"); "" for a workflow or an app's own account."""
    place: str = ""
    """Where it was asked, in words: "Slack", "console"."""
    thread_url: str = ""
    """Back to the thread, where the channel has a link to it."""
    shared: bool = False
    """The account is the app's own: everybody who uses the agent acts with it, not only who connects it."""
    action: str = ""
    """CONFIRM: where the form goes; a path of this site."""
    decline: str = ""
    """CONFIRM: where "No, don't connect" goes."""
    press: str = field(default="", repr=False)
    """CONFIRM: a hidden field `press` of the form. It names this very loading of the page, so that a button that is pressed
    twice, whose first answer the browser threw away, is not taken for another browser."""
    proof: str = ""
    """CONFIRM: how the person will be proven: "platform" (sign in to `proof_name` first), "email" (the provider's verified
    address has to be the one of `proof_name`), "code" (the six digits of the private chat; a field `code` is shown; weak)."""
    proof_name: str = ""
    """The chat platform's name: "Slack"."""
    problem: str = ""
    """CONFIRM: why the form came back: "That isn't the code. 4 tries are left."."""
    expires_at: int | None = None
    """Until when this page can be gone on with, in epoch milliseconds UTC."""
    minutes: int = 0
    """The same, from now, in whole minutes rounded up; 0 where it doesn't matter."""
    go: str = ""
    """PROGRESS: an absolute URL to leave for: the provider or the chat platform. Never shown as text."""
    go_name: str = ""
    """Whose site `go` is: "GitHub"."""
    account: str = ""
    """CONNECTED: as whom, at the service: "alice@example.test"."""
    weak: bool = False
    """The person was proven by a code alone: the page says so."""
    note: str = ""
    """Something more to know: that access can't be renewed, that another account was connected before."""
    reason: str = ""
    """Why, in a sentence or two, for the person."""
    error_id: str = ""
    """FAILED: under which id the log has more, for whoever is asked for help."""
    again: bool = False
    """A fresh link helps: "press Connect in the conversation again"."""

    @property
    def status(self) -> int:
        """The HTTP status to answer with."""
        return _STATUS.get(self.kind, 200) if not self.problem else 422


_STATUS: Final = {  # nothing above 499: proxies put a page of their own in the place of such answers
    PageKind.EXPIRED: 410,
    PageKind.USED: 409,
    PageKind.OTHER_BROWSER: 403,
    PageKind.OTHER_PERSON: 403,
    PageKind.FAILED: 400,
    PageKind.NOT_FOUND: 404,
}
