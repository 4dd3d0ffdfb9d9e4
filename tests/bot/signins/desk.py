"""Sign-ins on a real store, served over HTTP, with a provider that does as it is told.

What lives here: two replicas behind one address, prompts, and what was told. What does not: what is expected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from aiohttp import web

from bot.connections.connection import OAuthConnection
from bot.connections.connections import Connections
from bot.connections.credentials import Credential
from bot.outgoing import Outgoing
from bot.principal import Principal
from bot.server.app import build_app, runner_of
from bot.signins.attempt import Attempt
from bot.signins.page import Page
from bot.signins.signins import SignIns
from bot.signins.values import Done, Go, Offer
from bot.turn.signing import Account, Origin, sign_in_body
from channels.contract import Capabilities, Channel, Verified
from channels.events import Author, Ingress, Standing
from channels.http import WebhookRequest
from channels.identity import IdentityProvider
from channels.outbound import Delivery, MessageRef
from durable_core import codec
from durable_core.clock import ManualClock
from durable_core.crypto import KeyRing
from durable_core.ids import request_id
from durable_core.model import AnswerPolicy, Phase, Prompt, PromptDraft
from durable_core.schema import upgrade
from durable_core.store import Store
from durable_core.stores.open import open_store
from durable_core.testing.acts import start
from durable_core.testing.builders import ADDRESS, START_MS, step_commit
from tests.bot.server.fake_sessions import FakeApp
from tests.bot.signins.authority import Authority, authority
from tests.bot.signins.browser import Browser, Shown

KEYS = "k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
ALICE = Principal("chat:alice", "Alice", Standing.MEMBER, channel="chat")
PLACE = "chat:v1:thread"


class Chat(Channel):
    """A channel that knows as much of its people as a test says."""

    name: ClassVar[str] = "chat"
    capabilities: ClassVar[Capabilities] = Capabilities(private=True)

    def __init__(self) -> None:
        self.emails: dict[str, str] = {}
        self.provider: IdentityProvider | None = None

    async def verify(self, request: WebhookRequest) -> Verified:
        raise NotImplementedError

    def parse(self, verified: Verified) -> Ingress:
        raise NotImplementedError

    async def send(self, delivery: Delivery) -> MessageRef:
        raise NotImplementedError

    async def email_of(self, address: str, author: Author) -> str | None:
        return self.emails.get(author.id)

    async def link_to(self, address: str) -> str | None:
        return "https://chat.example.test/thread"

    def identity(self, address: str | None = None) -> IdentityProvider | None:
        return self.provider

    def author_of(self, claims: Mapping[str, object], tenancy: str | None = None) -> tuple[str, str] | None:
        return ("", str(claims["sub"]))


class Replicas:
    """Whichever replica a balancer chose: the one that a test names, or each in its turn."""

    def __init__(self, replicas: list[SignIns]) -> None:
        self.all = replicas
        self.turn = 0
        self.alternate = False

    @property
    def one(self) -> SignIns:
        if self.alternate:
            self.turn = (self.turn + 1) % len(self.all)
        return self.all[self.turn]

    def public_url(self) -> str:
        return self.one.public_url()

    def client_document(self) -> Mapping[str, Any]:
        return self.one.client_document()

    async def offer(self, prompt_id: str) -> Offer:
        return await self.one.offer(prompt_id)

    async def view(self, token: str, cookies: Mapping[str, str]) -> Page:
        return await self.one.view(token, cookies)

    async def begin(self, token: str, cookies: Mapping[str, str], form: Mapping[str, str]) -> Go | Done | Page:
        return await self.one.begin(token, cookies, form)

    async def decline(self, token: str, cookies: Mapping[str, str]) -> Page:
        return await self.one.decline(token, cookies)

    async def identified(self, params: Mapping[str, str], cookies: Mapping[str, str]) -> Go | Done | Page:
        return await self.one.identified(params, cookies)

    async def returned(self, connection: str, params: Mapping[str, str], cookies: Mapping[str, str]) -> Done | Page:
        return await self.one.returned(connection, params, cookies)

    async def page(self, attempt_id: str, cookies: Mapping[str, str]) -> Page:
        return await self.one.page(attempt_id, cookies)


@dataclass(slots=True, kw_only=True)
class Desk:
    """What a test drives."""

    store: Store
    clock: ManualClock
    provider: Authority
    connection: OAuthConnection
    connections: Connections
    replicas: Replicas
    chat: Chat
    url: str
    database: Path
    runner: web.AppRunner = field(repr=False)

    @property
    def sign_ins(self) -> SignIns:
        return self.replicas.one

    async def asked(
        self,
        *,
        scopes: tuple[str, ...] = ("issues",),
        who: Principal = ALICE,
        reason: Any = "missing",
        address: str = ADDRESS,
        **more: Any,
    ) -> str:
        """Have a run wait for a sign-in; the prompt's id."""
        claim = await start(self.store, address=address)
        prompt_id = str(request_id())
        body = sign_in_body(
            prompt_id,
            Account(connection=self.connection.name, title=self.connection.title, scopes=scopes, reason=reason),
            Origin(requester=who, agent="helper", session_id=claim.run_id, turn_id="turn_0", channel="chat", address=PLACE),
            asked_for=["open_issue"],
            action=None,
            expires_at=None,
            **more,
        )
        draft = PromptDraft(
            prompt_id=prompt_id,
            kind="sign-in",
            call_id="0.0.0",
            body=codec.encode(body),
            requester=who.id,
            policy=AnswerPolicy.REQUESTER,
            expires_at=None,
        )
        commit = step_commit(claim, prompts=(draft,), release=True, phase=Phase.WAITING, turn_id="turn_0")
        await self.store.commit(commit)
        return prompt_id

    async def offered(self, prompt_id: str | None = None) -> Offer:
        """Press Connect; what is told in private."""
        return await self.sign_ins.offer(prompt_id or await self.asked())

    async def prompt(self, prompt_id: str) -> Prompt:
        return await self.store.prompt(prompt_id)

    async def note(self, prompt_id: str) -> dict[str, Any]:
        found = codec.decode((await self.store.prompt(prompt_id)).note or codec.encode({}))
        assert isinstance(found, dict)
        return found

    async def credential(self, who: Principal = ALICE) -> Credential | None:
        return await self.connections.credential(self.connection, who.id)

    async def attempt(self, offer: Offer) -> Attempt:
        """The attempt of a link."""
        found = await self.sign_ins.attempts.find(offer.url.rpartition("/")[2].partition(".")[0])
        assert found is not None
        return found.attempt

    async def lines(self) -> list[tuple[str, str]]:
        """Words that were sent to the thread: to whom alone, and what."""
        found = []
        for lane in await self.store.claim_lanes("test", limit=100, lease_ms=1, items=100):
            for item in lane.items:
                said = codec.decode(item.body)
                assert isinstance(said, dict)
                if said.get("kind") == "notice":
                    found.append((str(said.get("private_to", "")), str(said["text"])))
        self.clock.advance(timedelta(milliseconds=2))
        return found

    def later(self, **by: float) -> None:
        self.clock.advance(timedelta(**by))


def _described(provider: Authority, *, discovered: bool) -> dict[str, Any]:
    app = {"title": "Tracker", "client_id": "app", "client_secret": "CANARY-client-secret", "scopes": ("issues",)}
    if discovered:
        return {**app, "issuer": provider.url}
    names = {"authorize_url": "authorize", "token_url": "token", "userinfo_url": "userinfo", "revoke_url": "revoke"}
    return {**app, **{name: f"{provider.url}/{path}" for name, path in names.items()}}


@asynccontextmanager
async def open_desk(
    folder: Path,
    *,
    postgres_url: str = "",
    discovered: bool = False,
    patience: float = 8.0,
    trusted: Sequence[str] = (),
    **connection: Any,
) -> AsyncIterator[Desk]:
    """Open a database, a provider, two replicas with a store each, and a server."""
    database = folder / "moorings.db"
    if not postgres_url:
        upgrade(f"sqlite:///{database}")
    clock, chat = ManualClock(START_MS), Chat()
    keys = KeyRing.parse(KEYS)
    stores = [open_store(postgres_url or f"sqlite:///{database}", keys=keys, clock=clock) for _ in range(2)]
    for store in stores:
        await store.open()
    async with authority() as provider:
        made = OAuthConnection("tracker", **(_described(provider, discovered=discovered) | connection))
        outgoing = Outgoing(trusted=[provider.url, *trusted])
        everything = [
            Connections({"tracker": made}, store=store, outgoing=lambda: outgoing, public_url="http://127.0.0.1:1")
            for store in stores
        ]
        replicas = Replicas(
            [SignIns(store=one.store, connections=one, channels={"chat": chat}, patience=patience) for one in everything]
        )
        runner = runner_of(build_app(replace(FakeApp(), sign_ins=replicas)), drain=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        for one in everything:
            one.public_url = url
        try:
            yield Desk(
                store=stores[0],
                clock=clock,
                provider=provider,
                connection=made,
                connections=everything[0],
                replicas=replicas,
                chat=chat,
                url=url,
                database=database,
                runner=runner,
            )
        finally:
            for replica in replicas.all:
                await replica.close()
            await runner.cleanup()
            await outgoing.close()
            for store in stores:
                await store.close()


async def through(desk: Desk, browser: Browser, prompt_id: str) -> tuple[Offer, Shown]:
    """Press Connect, give the code, let the provider send the browser back; the link, and the page at its end."""
    offer = await desk.offered(prompt_id)
    await browser.open(offer.url)
    page = await browser.press(code=offer.code or "")
    return offer, await browser.go_on() if page.next else page
