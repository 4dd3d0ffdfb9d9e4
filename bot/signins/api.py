"""Sign-ins as a port: what the server asks of them.

What lives here: the protocol. What does not: HTTP (bot/server/connect.py), and how a sign-in goes (signins.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from bot.signins.page import Page
from bot.signins.values import Done, Go, Offer


class SignInApi(Protocol):
    """Sign-ins, as a browser may use them; `cookies` are those that it sent. Raises: Unavailable."""

    def public_url(self) -> str:
        """Return the app's own address, without a slash at its end. Raises: NotReady."""
        ...

    def client_document(self) -> Mapping[str, Any]:
        """Say who the app is, for providers that read such a document in place of a registration."""
        ...

    async def offer(self, prompt_id: str) -> Offer:
        """Make a fresh link for whoever a sign-in prompt asks; the caller tells it to nobody else. Raises: NotFound."""
        ...

    async def view(self, token: str, cookies: Mapping[str, str]) -> Page:
        """Show what a link is for, or what has come of it; nothing is changed."""
        ...

    async def begin(self, token: str, cookies: Mapping[str, str], form: Mapping[str, str]) -> Go | Done | Page:
        """Go on from the page that a link opens: bind the browser, prove the person, leave for the provider."""
        ...

    async def decline(self, token: str, cookies: Mapping[str, str]) -> Page:
        """Say no on the page that a link opens."""
        ...

    async def identified(self, params: Mapping[str, str], cookies: Mapping[str, str]) -> Go | Done | Page:
        """Come back from the chat platform's sign-in, and leave for the provider if it is the person."""
        ...

    async def returned(self, connection: str, params: Mapping[str, str], cookies: Mapping[str, str]) -> Done | Page:
        """Come back from the provider: take the state, spend the code, tell the conversation."""
        ...

    async def page(self, attempt_id: str, cookies: Mapping[str, str]) -> Page:
        """Show what came of an attempt, to the browser that it is bound to."""
        ...
