"""Every adapter keeps promises C1 to C13, and the kit catches an adapter that breaks one."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

import channels.contract
from channels import (
    Author,
    Capabilities,
    Delivery,
    DeliveryFailed,
    IdentityProvider,
    Ingress,
    Message,
    MessageRef,
    Outbound,
    Verified,
    WebhookRequest,
)
from channels.console import Console, ConsolePlatform
from channels.testing import ChannelCase, ChannelContract
from tests.channels.contract.cases import console_case, slack_case


class TestConsole(ChannelContract):
    """The console channel."""

    def case(self) -> AbstractAsyncContextManager[ChannelCase]:
        return console_case()


class TestSlack(ChannelContract):
    """The Slack channel."""

    def case(self) -> AbstractAsyncContextManager[ChannelCase]:
        return slack_case()


def test_every_promise_has_a_test_of_its_number() -> None:
    promised = set(re.findall(r"^C(\d+) ", channels.contract.__doc__ or "", flags=re.MULTILINE))
    tested = {found[1] for name in dir(ChannelContract) if (found := re.match(r"test_c(\d+)_", name))}
    assert promised == tested == {str(number) for number in range(1, 14)}


def test_the_kit_needs_no_pytest() -> None:
    kit = Path(channels.contract.__file__).parent / "testing"
    assert not any("pytest" in line for file in kit.glob("*.py") for line in file.read_text().splitlines() if "import" in line)


class _TakesAnySignature(Console):
    async def verify(self, request: WebhookRequest) -> Verified:
        return Verified(request, "believed")


class _ParsesFirst(Console):
    async def verify(self, request: WebhookRequest) -> Verified:
        self.parse(Verified(request, "not yet"))
        return await super().verify(request)


class _InventsKeys(Console):
    def __init__(self, platform: ConsolePlatform) -> None:
        super().__init__(platform)
        self.count = itertools.count()

    def parse(self, verified: Verified) -> Ingress:
        ingress = super().parse(verified)
        fresh = tuple(replace(e, key=f"{next(self.count)}") if isinstance(e, Message) else e for e in ingress.events)
        return Ingress(fresh)


class _ForgetsTheTenancy(Console):
    def parse(self, verified: Verified) -> Ingress:
        events = super().parse(verified).events
        return Ingress(tuple(replace(e, address="console:v1:1") if isinstance(e, Message) else e for e in events))


class _PostsAgain(Console):
    async def send(self, delivery: Delivery) -> MessageRef:
        await self.platform.post_bot(f"{delivery.id}-{delivery.attempt}", delivery.address[11:], outbound_json=_JSON)
        return await super().send(delivery)


class _CantEdit(Console):
    async def edit(self, ref: MessageRef, delivery: Delivery) -> MessageRef:
        assert ref.channel == self.name
        return await self.send(delivery)


class _HearsItself(Console):
    def parse(self, verified: Verified) -> Ingress:
        body = verified.request.body.replace(b'"bot"', b'"bo"')
        return super().parse(Verified(replace(verified.request, body=body), verified.proof))


class _Trusting(Console):
    def parse(self, verified: Verified) -> Ingress:
        body = json.loads(verified.request.body)
        assert body["author"]["id"]
        return super().parse(verified)


class _FindsNothing(Console):
    async def find(self, address: str, delivery_id: str) -> MessageRef | None:
        assert address
        assert delivery_id
        return None


class _DropsCards(Console):
    async def send(self, delivery: Delivery) -> MessageRef:
        return await super().send(replace(delivery, message=replace(delivery.message, text="x", card=None)))


class _CutsText(Console):
    async def send(self, delivery: Delivery) -> MessageRef:
        short = replace(delivery.message, text=delivery.message.text[:1_000])
        return await super().send(replace(delivery, message=short))


class _Shouts(Console):
    async def send(self, delivery: Delivery) -> MessageRef:
        return await super().send(replace(delivery, message=replace(delivery.message, private_to=None)))


class _Proves(Console):
    """A console with a sign-in: the whole of it in one claim."""

    def identity(self, address: str | None = None) -> IdentityProvider | None:
        return IdentityProvider(
            "https://console.example",
            authorize_url="https://console.example/authorize",
            token_url="https://console.example/token",
            userinfo_url="https://console.example/userinfo",
            jwks_url="https://console.example/keys",
            client_id="me",
            client_secret="not told",
            extra={} if address is None else {"at": address},
        )

    def author_of(self, claims: Mapping[str, object], tenancy: str | None = None) -> tuple[str, str] | None:
        who = claims.get("who")
        return (self._tenancy, who) if isinstance(who, str) and who else None

    async def verify(self, request: WebhookRequest) -> Verified:
        self._tenancy = await self.platform.platform_id()
        return await super().verify(request)

    _tenancy = "unknown"


class _NamesSomebodyElse(_Proves):
    def author_of(self, claims: Mapping[str, object], tenancy: str | None = None) -> tuple[str, str] | None:
        found = super().author_of(claims, tenancy)
        return found and (found[0], "bob")


class _NamesTheDefault(_Proves):
    def author_of(self, claims: Mapping[str, object], tenancy: str | None = None) -> tuple[str, str] | None:
        return super().author_of(claims, tenancy) or (self._tenancy, "admin")


class _ObeysTheQuestion(_Proves):
    def author_of(self, claims: Mapping[str, object], tenancy: str | None = None) -> tuple[str, str] | None:
        found = super().author_of(claims, tenancy)
        return found and (tenancy or found[0], found[1])


class _SpeaksPlainHttp(_Proves):
    def identity(self, address: str | None = None) -> IdentityProvider | None:
        found = super().identity(address)
        return found and replace(found, token_url="http://console.example/token")


class _MovesWithTheAddress(_Proves):
    def identity(self, address: str | None = None) -> IdentityProvider | None:
        found = super().identity(address)
        return found if address is None or found is None else replace(found, client_id="another")


class _GuessesAddresses(Console):
    async def email_of(self, address: str, author: Author) -> str | None:
        return f"{author.id.lower()}@example.test"


class _LinksAnywhere(Console):
    async def link_to(self, address: str) -> str | None:
        return f"https://console.example/?to={address}"


class _LinksByScript(Console):
    async def link_to(self, address: str) -> str | None:
        return await super().link_to(address) and "javascript:open()"


class _LinksWithASecret(Console):
    async def link_to(self, address: str) -> str | None:
        return await super().link_to(address) and "https://bot:secret@console.example/"


_JSON = Outbound("again").to_json()
_BROKEN: list[tuple[str, Callable[[ConsolePlatform], Console]]] = [
    ("c1", _TakesAnySignature),
    ("c1", _ParsesFirst),
    ("c2", _InventsKeys),
    ("c3", _ForgetsTheTenancy),
    ("c4", _PostsAgain),
    ("c5", _CantEdit),
    ("c6", _HearsItself),
    ("c7", _Trusting),
    ("c8", _FindsNothing),
    ("c9", _DropsCards),
    ("c9", _CutsText),
    ("c10", _Shouts),
    ("c11", _NamesSomebodyElse),
    ("c11", _NamesTheDefault),
    ("c11", _ObeysTheQuestion),
    ("c11", _SpeaksPlainHttp),
    ("c11", _MovesWithTheAddress),
    ("c12", _GuessesAddresses),
    ("c13", _LinksAnywhere),
    ("c13", _LinksByScript),
    ("c13", _LinksWithASecret),
]


@pytest.mark.parametrize(("promise", "broken"), _BROKEN, ids=lambda value: getattr(value, "__name__", value))
async def test_the_kit_catches_a_broken_promise(promise: str, broken: Callable[[ConsolePlatform], Console]) -> None:
    class Contract(ChannelContract):
        def case(self) -> AbstractAsyncContextManager[ChannelCase]:
            return console_case(broken)

    (name,) = [name for name in dir(Contract) if name.startswith(f"test_{promise}_")]
    with pytest.raises(AssertionError, match=f"{promise.upper()}: "):
        await getattr(Contract(), name)()


class TestProves(ChannelContract):
    """An adapter whose platform has a sign-in."""

    def case(self) -> AbstractAsyncContextManager[ChannelCase]:
        return console_case(_Proves)


class _Plain(Console):
    """A channel without edit, private delivery: what it can't do, it says so."""

    capabilities = Capabilities(buttons=True, find=True)

    async def send(self, delivery: Delivery) -> MessageRef:
        if delivery.message.private_to is not None:
            raise DeliveryFailed("not_private", permanent=True)
        return await super().send(delivery)

    async def edit(self, ref: MessageRef, delivery: Delivery) -> MessageRef:
        return await super(Console, self).edit(ref, delivery)


class TestPlain(ChannelContract):
    """An adapter of the least capabilities keeps the contract with the defaults."""

    def case(self) -> AbstractAsyncContextManager[ChannelCase]:
        return console_case(_Plain)
