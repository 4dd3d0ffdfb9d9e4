"""The tests of promises C11 to C13: what a channel knows of people beyond their messages, and where it can be read.

What lives here: `PeopleContract`, a part of `ChannelContract`. What does not: the promises themselves (`channels.contract`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from urllib.parse import urlsplit

from channels.contract import Identifies, KnowsEmail, Linkable
from channels.errors import ChannelError
from channels.events import Author, Ignored
from channels.testing.case import ChannelCase
from channels.testing.hostile import STRANGE

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class PeopleContract(ABC):
    """The part of the kit about people; a channel without one of the protocols has nothing to keep of its promise."""

    @abstractmethod
    def case(self) -> AbstractAsyncContextManager[ChannelCase]:
        """Return a fresh adapter with a fresh platform; what it opened is closed on leaving."""

    async def test_c11_claims_name_the_author_of_the_events(self) -> None:
        """Name the reader by their claims as by their messages, and nobody by claims that say less."""
        async with self.case() as case:
            channel = case.channel
            if not isinstance(channel, Identifies):
                return
            provider = channel.identity()
            if provider is None or case.claims is None:
                raise AssertionError("C11: the case needs claims of its reader, and a channel whose sign-in is set up")
            for url in (provider.authorize_url, provider.token_url, provider.userinfo_url, provider.jwks_url):
                _expect_link("C11", url)
            shown = f"{provider!r} {channel!r}"
            _expect(not provider.client_secret or provider.client_secret not in shown, "C11: a repr shows the client's secret")
            there = channel.identity(case.address)
            same = there == provider if there is None else replace(there, extra=provider.extra) == provider
            _expect(same, f"C11: at its address the sign-in is {there!r}")
            author = await _author(case)
            named = channel.author_of(case.claims)
            _expect(named == (author.tenancy, author.id), f"C11: the claims name {named!r}, the events {author!r}")
            known = channel.author_of(case.claims, author.tenancy)
            _expect(known == named, f"C11: asked for their own tenancy, they name {known!r}")
            other = channel.author_of(case.claims, "another-tenancy")
            _expect(other in {named, None}, f"C11: asked for another tenancy, they name {other!r}")
            for claims in _less(case.claims):
                found = channel.author_of(claims)
                _expect(found in {named, None}, f"C11: {claims!r} name {found!r}")
            for claims in _strange(case.claims):
                found = channel.author_of(claims)
                _expect(found is None or all(map(_is_text, found)), f"C11: {claims!r} name {found!r}")

    async def test_c12_an_email_address_is_vouched_for_or_none(self) -> None:
        """Tell the reader's address, and none for somebody unknown."""
        async with self.case() as case:
            channel = case.channel
            if not isinstance(channel, KnowsEmail):
                return
            author = await _author(case)
            found = await channel.email_of(case.address, author)
            _expect(found == case.email, f"C12: the address is {found!r}, not {case.email!r}")
            nobody = await channel.email_of(case.address, replace(author, id="NOBODY"))
            _expect(nobody is None, f"C12: somebody unknown has the address {nobody!r}")

    async def test_c13_a_link_leads_to_the_address(self) -> None:
        """Link to the address, the same each time, and to no address that is none."""
        async with self.case() as case:
            channel = case.channel
            if not isinstance(channel, Linkable):
                return
            link = await channel.link_to(case.address)
            if link is not None:
                _expect_link("C13", link)
            _expect(link == await channel.link_to(case.address), "C13: a second link to the same address is another")
            for address in ("", ":", f"{case.address}:", "elsewhere:v1:x"):
                try:
                    wrong = await channel.link_to(address)
                except ChannelError:
                    continue
                raise AssertionError(f"C13: {address!r} is linked to as {wrong!r}")


async def _author(case: ChannelCase) -> Author:
    """Return the reader as the author of an event."""
    verified = await case.channel.verify(await case.request(case.message_body))
    authors = [event.author for event in case.channel.parse(verified).events if not isinstance(event, Ignored)]
    found = [author for author in authors if author.id == case.reader]
    _expect(bool(found), "the case's message has to be its reader's")
    return found[0]


def _less(claims: Mapping[str, object]) -> Iterator[dict[str, object]]:
    yield {}
    for name in claims:
        yield {key: value for key, value in claims.items() if key != name}


def _strange(claims: Mapping[str, object]) -> Iterator[dict[str, object]]:
    for name in claims:
        yield from ({**claims, name: value} for value in STRANGE)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _expect_link(promise: str, url: str) -> None:
    parts = urlsplit(url)
    plain = parts.scheme == "http" and parts.hostname in _LOOPBACK
    bare = parts.username is None and parts.password is None
    _expect(bool(parts.hostname) and bare and (parts.scheme == "https" or plain), f"{promise}: {url!r} is no link to follow")


def _expect(kept: bool, otherwise: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not kept:
        raise AssertionError(otherwise)
