"""A browser without a screen: cookies, forms, redirects and refreshes as a real one has them.

What lives here: what somebody does with a page. What does not: a real browser (tests/e2e/browser.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import unescape
from types import TracebackType
from typing import Self
from urllib.parse import urljoin, urlsplit

import aiohttp

_FORM = re.compile(r'<form[^>]*action="([^"]*)"', re.IGNORECASE)
_HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)"')
_REFRESH = re.compile(r'<meta http-equiv="refresh" content="\d+;\s*url=([^"]*)"', re.IGNORECASE)
_TAG = re.compile(r"<[^>]+>")
_HEAD = re.compile(r"<head>.*?</head>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Shown:
    """A page as it was loaded."""

    url: str
    status: int
    headers: Mapping[str, str] = field(repr=False)
    html: str = field(repr=False)

    @property
    def text(self) -> str:
        """What somebody reads."""
        return " ".join(unescape(_TAG.sub(" ", _HEAD.sub("", self.html))).split())

    @property
    def forms(self) -> list[str]:
        """Where its forms go."""
        return [unescape(one) for one in _FORM.findall(self.html)]

    @property
    def hidden(self) -> dict[str, str]:
        """What its forms send along unseen."""
        return {name: unescape(value) for name, value in _HIDDEN.findall(self.html)}

    @property
    def next(self) -> str:
        """Where it leaves for by itself."""
        found = _REFRESH.search(self.html)
        return unescape(found[1]) if found else ""


class Browser:
    """One person's browser. It says of its requests what browsers say: Fetch Metadata, and no Referer where pages forbid it."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
        self.page = Shown("", 0, {}, "")
        self.visited: list[str] = []
        """Every address it was at, redirects too."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._session.close()

    async def open(
        self, url: str, *, method: str = "GET", follow: bool = True, headers: Mapping[str, str] | None = None
    ) -> Shown:
        """Type an address, or follow a link of a message."""
        return await self._load(method, url, site="none", follow=follow, headers=headers)

    async def press(self, *, place: int = 0, site: str = "same-origin", **fields: str) -> Shown:
        """Send a form of the page."""
        action = urljoin(self.page.url, self.page.forms[place])
        return await self._load("POST", action, site=site, form={**self.page.hidden, **fields})

    async def post(
        self,
        url: str,
        *,
        site: str = "",
        headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
        **fields: str,
    ) -> Shown:
        """Send a form that some other page has made up."""
        return await self._load("POST", url, site=site, form={**(form or {}), **fields}, headers=headers)

    async def go_on(self, *, follow: bool = True) -> Shown:
        """Let the page leave for where it leaves for by itself."""
        assert self.page.next, self.page.text
        return await self._load("GET", urljoin(self.page.url, self.page.next), site="cross-site", follow=follow)

    async def fetch(self, url: str) -> Shown:
        """Open an address beside the page that is shown, as several tabs at once do."""
        tab = Browser.__new__(Browser)
        tab._session, tab.page, tab.visited = self._session, self.page, []
        return await tab.open(url)

    def cookies(self) -> dict[str, str]:
        return {cookie.key: cookie.value for cookie in self._session.cookie_jar}

    async def _load(
        self,
        method: str,
        url: str,
        *,
        site: str,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        follow: bool = True,
    ) -> Shown:
        sent = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", **({"Sec-Fetch-Site": site} if site else {})}
        for _ in range(10):
            self.visited.append(url)
            async with self._session.request(
                method, url, data=form, headers={**sent, **(headers or {})}, allow_redirects=False
            ) as answer:
                self.page = Shown(url, answer.status, answer.headers.copy(), await answer.text())
            if answer.status not in {302, 303} or not follow:
                return self.page
            before, url = url, urljoin(url, self.page.headers["Location"])
            method, form = "GET", None
            if urlsplit(before).netloc != urlsplit(url).netloc:
                sent["Sec-Fetch-Site"] = "cross-site"
        raise AssertionError("too many redirects")
