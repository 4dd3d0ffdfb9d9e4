"""A provider that nobody here wrote: npm's `oidc-provider`, one a test module, with pages to log in and to consent.

What lives here: installing, starting, steering it, and people who sign in there without a browser. What does not: its settings
(peers/oidc.mjs), expectations.

Clients: `app` and `app-post` (confidential), `public`, `machine` (client credentials); more by `client()`. Each of the first
three is sent back to `/connect/callback/<name>` or `/connect/identity` on any port of this machine. PKCE is enforced, refresh
tokens rotate and their reuse is detected, `iss` is in every callback. Any login is somebody: `alice` has the address
alice@example.test, verified.
"""

from __future__ import annotations

import html
import http.client
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import aiohttp
import pytest

from tests import parts

PACKAGE, VERSION = "oidc-provider", "9.13.3"
SECRET = "s3cret-s3cret-s3cret-s3cret"
SCRIPT = Path(__file__).parent / "peers" / "oidc.mjs"
DEFAULTS = {
    "access_ttl": 3600,
    "refresh_ttl": 14 * 24 * 3600,
    "id_ttl": 3600,
    "device_ttl": 600,
    "code_ttl": 60,
    "rotate": True,
    "refresh": True,
    "email_verified": True,
    "emails": {},
    "skew": 0,
}


def cache() -> Path:
    """Return where the provider is kept from one run to the next, outside of the checkout."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "moorings-tests" / f"{PACKAGE}-{VERSION}"


def _installed() -> Path:
    node = shutil.which("node") and shutil.which("npm")
    if not node:
        parts.missing("oidc-provider", "no node or npm on this machine")
    if not (cache() / "node_modules" / PACKAGE).exists() and "oidc-provider" in parts.required():
        _install()
    if not (cache() / "node_modules" / PACKAGE).exists():
        parts.missing("oidc-provider", f"{PACKAGE}@{VERSION} is not installed in {cache()}")
    return cache()


def _install() -> None:
    cache().mkdir(parents=True, exist_ok=True)
    options = ["--no-audit", "--no-fund", "--no-save", f"--prefix={cache()}"]
    command = ["npm", "install", *options, f"{PACKAGE}@{VERSION}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        parts.missing("oidc-provider", done.stderr.strip()[-500:])


class OidcPeer:
    """The running provider as a test sees it; what steers it does not wait for a loop, so any test may call it."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer

    def settings(self, **changed: Any) -> None:
        """Change what it does from now on: `access_ttl=1`, `rotate=False`, `skew=3600` (its clock, in seconds), …"""
        assert set(changed) <= set(DEFAULTS)
        self._control("settings", changed)

    def client(self, client_id: str, **metadata: Any) -> None:
        """Add a client, or put another in the place of one that was added."""
        self._control("client", {"client_id": client_id, **metadata})

    def plan(self, path: str, **answer: Any) -> None:
        """Have the next request to a path answered so: `status=`, `body=`, `headers=`.

        `drop="before"` cuts it off unseen; `drop="after"` does what was asked and loses the answer.
        """
        self._control("plan", {"path": path, **answer})

    def asked(self, grant_type: str | None = None) -> list[dict[str, Any]]:
        """Return what came to the token endpoint since the last `reset`: `grant_type`, `client_id`, `outcome`."""
        found: list[dict[str, Any]] = self._control("asked", {})
        return [one for one in found if grant_type in (None, one["grant_type"])]

    def revoke(self, subject: str | None = None) -> None:
        """Take away what somebody granted, or everybody did, as they could do on the provider's own pages."""
        self._control("revoke", {"subject": subject})

    def forget_clients(self) -> None:
        """Forget those that registered or were added, as providers do after a while."""
        self._control("forget_clients", {})

    def reset(self) -> None:
        """Forget plans and what was asked, and behave as in the beginning."""
        self._control("reset", DEFAULTS)

    def _control(self, name: str, given: Any) -> Any:
        connection = http.client.HTTPConnection(self.issuer.removeprefix("http://"), timeout=30)
        try:
            connection.request("POST", f"/_test/{name}", json.dumps(given))
            return json.load(connection.getresponse())
        finally:
            connection.close()

    # People without a browser

    async def sign_in(self, url: str, login: str = "alice", *, deny: bool = False) -> str:
        """Go where the app sends a person, log in and consent, or refuse; returns the address they are sent back to."""
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
            return await self._walk(browser, url, login, deny=deny)

    async def approve_device(self, url: str, login: str = "alice", *, deny: bool = False) -> None:
        """Open a device flow's complete address, confirm the code, log in and consent, or refuse."""
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
            await self._walk(browser, url, login, deny=deny)

    async def _walk(self, browser: aiohttp.ClientSession, url: str, login: str, *, deny: bool) -> str:
        data: dict[str, str] | None = None
        refused = False
        for _ in range(20):
            asking = (
                browser.get(url, allow_redirects=False) if data is None else browser.post(url, data=data, allow_redirects=False)
            )
            async with asking as answer:
                page, here = await answer.text(), str(answer.url)
                if answer.status in (301, 302, 303, 307):
                    url, data = urljoin(here, answer.headers["Location"]), None
                    if not url.startswith(self.issuer):
                        return url
                    continue
            assert answer.status < 400, page
            step = None if refused else _next(page, here, login, deny=deny)
            if step is None:
                return here
            refused = step[0].endswith("/abort")
            url, data = step
        raise AssertionError("the provider's pages lead nowhere")


def _next(page: str, here: str, login: str, *, deny: bool) -> tuple[str, dict[str, str] | None] | None:
    """Find what a person would do on one of the provider's pages; None where there is nothing to do."""
    form = re.search(r"<form[^>]*action=\"([^\"]+)\"[^>]*>(.*?)</form>", page, re.DOTALL)
    if form is None:
        return None
    inputs = re.findall(r"<input[^>]*>", form[2])
    named = {
        name[1]: html.unescape(value[1]) if (value := re.search(r'value="([^"]*)"', one)) else ""
        for one in inputs
        if (name := re.search(r'name="([^"]+)"', one))
    }
    cancel = re.search(r'href="([^"]+/abort)"', page)
    if deny and cancel:
        return urljoin(here, html.unescape(cancel[1])), None
    if "login" in named:
        named |= {"login": login, "password": "any"}
    return urljoin(here, html.unescape(form[1])), named


@contextmanager
def running() -> Iterator[OidcPeer]:
    """Run a provider of one's own."""
    command = ["node", str(SCRIPT), str(_installed())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            issuer = process.stdout.readline().strip()
            assert issuer.startswith("http://127.0.0.1:"), "the provider does not start"
            yield OidcPeer(issuer)
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def oidc_process() -> Iterator[OidcPeer]:
    with running() as peer:
        yield peer


@pytest.fixture
def oidc(oidc_process: OidcPeer) -> OidcPeer:
    """The module's provider, as in the beginning."""
    oidc_process.reset()
    return oidc_process
