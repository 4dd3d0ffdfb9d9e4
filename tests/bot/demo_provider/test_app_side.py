"""The demo's tools with the demo's provider, over HTTP: an issue once, as who signed in; then it is ended from the thread.

What lives here: the two sides together, without a bot. What does not: the page (test_routes.py), the turn (tests/e2e).
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from aiohttp import web

from bot.connections.connection import Need
from bot.connections.connections import Connections, NeedsSignIn, Ready
from bot.connections.errors import Unauthorized
from bot.context import ToolContext
from bot.demo import open_issue, tracker
from bot.demo_provider.accounts import Accounts, Person, challenge_of
from bot.demo_provider.routes import ProviderRoutes
from bot.history import ResultStatus
from bot.outgoing import Outgoing
from bot.principal import Principal
from bot.ready_tools import disconnect_account
from bot.tools import ToolOutcome
from durable_core.clock import ManualClock
from durable_core.crypto import KeyRing, new_key_entry
from durable_core.stores.open import open_store
from durable_core.testing.builders import START_MS
from tests.bot.people import ALICE, BOB, NOBODY

VERIFIER = "v" * 43
NEED = Need.of(tracker)


@dataclass
class Sides:
    accounts: Accounts
    connections: Connections
    runner: web.AppRunner

    async def sign_in(self, who: Principal = ALICE) -> None:
        """Sign in as the browser would, without the page."""
        provider = self.connections.provider(tracker)
        person = Person(f"{who.name.lower()}@example.test", who.name, verified=True)
        code = await self.accounts.grant(
            person, scope="issues", redirect_uri=provider.redirect_uri, challenge=challenge_of(VERIFIER)
        )
        grant = await provider.exchange(code, verifier=VERIFIER, redirect_uri=provider.redirect_uri)
        account = await provider.account(grant)
        assert account is not None
        assert (account.email, account.email_verified) == (person.email, True)
        await self.connections.keep(tracker, who.id, grant, account, scopes=NEED.scopes)

    def context(self, call_id: str = "0.1.0", who: Principal = ALICE) -> ToolContext[None]:
        lent = self.connections.lend([NEED], who)
        return ToolContext("ses_1", who, call_id=call_id, deps=None, lent=lent)

    async def issue(self, title: str, call_id: str = "0.1.0") -> ToolOutcome:
        return await open_issue.run(self.context(call_id), {"title": title})

    async def disconnect(self, account: str, who: Principal = ALICE) -> ToolOutcome:
        lent = self.connections.lend(disconnect_account.connections, who)
        ctx = ToolContext("ses_1", who, call_id="0.2.0", deps=None, lent=lent)
        return await disconnect_account.run(ctx, {"account": account})


@pytest.fixture
async def sides() -> AsyncIterator[Sides]:
    accounts, app = Accounts(), web.Application()
    listening = socket.create_server(("127.0.0.1", 0))
    origin = f"http://127.0.0.1:{listening.getsockname()[1]}"
    app.add_routes(ProviderRoutes(accounts, origin=origin, people=[]).routes())
    runner = web.AppRunner(app)
    await runner.setup()
    await web.SockSite(runner, listening).start()
    store = open_store("sqlite:///:memory:", keys=KeyRing.parse(new_key_entry()), clock=ManualClock(START_MS))
    await store.open()
    outgoing = Outgoing(trusted=[origin])
    connections = Connections({"tracker": tracker}, store=store, outgoing=lambda: outgoing, public_url=origin)
    yield Sides(accounts, connections, runner)
    await connections.close()
    await outgoing.close()
    await store.close()
    await runner.cleanup()
    accounts.close()


async def test_an_issue_is_opened_once_as_who_signed_in(sides: Sides) -> None:
    found = await sides.connections.check([NEED], ALICE)
    assert isinstance(found, NeedsSignIn)
    assert (found.reason, found.scopes) == ("missing", ("issues",))
    await sides.sign_in()
    assert await sides.connections.check([NEED], ALICE) == Ready()
    first, again = await sides.issue("Broken link"), await sides.issue("Broken link")
    assert first.content == again.content == "Opened issue #1 “Broken link” as Alice."
    assert [(issue.title, issue.author_email) for issue in await sides.accounts.issues()] == [
        ("Broken link", "alice@example.test")
    ]
    assert isinstance(await sides.connections.check([NEED], BOB), NeedsSignIn)


async def test_a_revoked_token_is_noticed_by_the_next_call(sides: Sides) -> None:
    await sides.sign_in()
    assert await sides.accounts.revoke_all("alice@example.test") == 1
    outcome = await sides.issue("Broken link")
    assert isinstance(outcome.unauthorized, Unauthorized)
    assert isinstance(await sides.connections.check([NEED], ALICE), NeedsSignIn)
    await sides.sign_in()
    assert (await sides.issue("Broken link")).content == "Opened issue #1 “Broken link” as Alice."


@pytest.mark.parametrize("called", ["tracker", "Demo tracker", " demo TRACKER "])
async def test_disconnecting_revokes_there_and_forgets_here(sides: Sides, called: str) -> None:
    await sides.sign_in()
    kept = await sides.connections.credential(tracker, ALICE.id)
    assert kept is not None
    outcome = await sides.disconnect(called)
    assert outcome.content == "Disconnected Demo tracker: Alice's account was revoked there and forgotten here."
    assert await sides.accounts.bearer(kept.access_token) is None
    assert await sides.connections.credential(tracker, ALICE.id) is None
    outcome = await sides.disconnect(called)
    assert outcome.content == "Alice has no account connected at Demo tracker, so there is nothing to disconnect."


async def test_disconnecting_ends_nobody_elses(sides: Sides) -> None:
    await sides.sign_in()
    await sides.sign_in(BOB)
    await sides.disconnect("tracker")
    assert await sides.connections.credential(tracker, BOB.id) is not None


async def test_what_can_not_be_revoked_is_forgotten_and_said(sides: Sides) -> None:
    await sides.sign_in()
    await sides.runner.cleanup()
    outcome = await sides.disconnect("tracker")
    assert str(outcome.content).startswith("Forgot Alice's account at Demo tracker here. It could not be revoked")
    assert await sides.connections.credential(tracker, ALICE.id) is None


async def test_an_account_that_nobody_signs_in_to_is_named(sides: Sides) -> None:
    outcome = await sides.disconnect("GitHub")
    assert outcome.status is ResultStatus.FAILED
    assert "there is: Demo tracker" in str(outcome.content)
    outcome = await sides.disconnect("tracker", NOBODY)
    assert outcome.status is ResultStatus.FAILED
    assert "nobody in particular" in str(outcome.content)
