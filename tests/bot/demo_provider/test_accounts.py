"""What the demo's provider keeps: codes, refresh tokens and keys of issues count once, and all of it outlives a kill."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.demo_provider.accounts import (
    ACCESS_SECONDS,
    CODE_SECONDS,
    REFRESH_SECONDS,
    Accounts,
    GrantRefused,
    Issued,
    KeyReused,
    Person,
    challenge_of,
)

ALICE = Person("alice@example.test", "Alice", verified=True)
BOB = Person("bob@example.test", "Bob", verified=True)
URI = "http://127.0.0.1:8700/connect/callback/tracker"
VERIFIER = "v" * 43


class Watch:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = 1_800_000_000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def accounts(watch: Watch) -> Accounts:
    return Accounts(now=watch)


async def agreed(accounts: Accounts, person: Person = ALICE) -> str:
    return await accounts.grant(person, scope="issues", redirect_uri=URI, challenge=challenge_of(VERIFIER))


async def signed_in(accounts: Accounts, person: Person = ALICE) -> Issued:
    return await accounts.exchange(await agreed(accounts, person), verifier=VERIFIER, redirect_uri=URI)


async def refused(attempt: Callable[[], object]) -> str:
    with pytest.raises(GrantRefused) as caught:
        await attempt()  # type: ignore[misc]
    assert caught.value.error == "invalid_grant"
    return caught.value.description


async def test_a_code_becomes_a_token_that_speaks_for_who_agreed(accounts: Accounts) -> None:
    issued = await signed_in(accounts)
    bearer = await accounts.bearer(issued.access_token)
    assert bearer is not None
    assert (bearer.person, bearer.scopes) == (ALICE, frozenset({"issues"}))
    assert await accounts.bearer(issued.refresh_token) is None
    assert issued.access_token not in repr(issued)
    assert issued.refresh_token not in repr(issued)


async def test_the_challenge_is_that_of_the_rfc() -> None:
    assert challenge_of("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


async def test_a_wrong_verifier_or_address_gets_nothing_and_burns_nothing(accounts: Accounts) -> None:
    code = await agreed(accounts)
    assert "verifier" in await refused(lambda: accounts.exchange(code, verifier="w" * 43, redirect_uri=URI))
    assert "redirect" in await refused(lambda: accounts.exchange(code, verifier=VERIFIER, redirect_uri=f"{URI}/"))
    assert (await accounts.exchange(code, verifier=VERIFIER, redirect_uri=URI)).access_token


async def test_a_code_used_twice_revokes_what_came_of_it(accounts: Accounts) -> None:
    code = await agreed(accounts)
    issued = await accounts.exchange(code, verifier=VERIFIER, redirect_uri=URI)
    assert "used before" in await refused(lambda: accounts.exchange(code, verifier=VERIFIER, redirect_uri=URI))
    assert await accounts.bearer(issued.access_token) is None
    assert "over" in await refused(lambda: accounts.refresh(issued.refresh_token))


async def test_two_exchanges_at_once_get_one_token(accounts: Accounts) -> None:
    code = await agreed(accounts)
    tries = [accounts.exchange(code, verifier=VERIFIER, redirect_uri=URI) for _ in range(8)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(result, Issued) for result in results) == 1


async def test_codes_and_tokens_end(accounts: Accounts, watch: Watch) -> None:
    code = await agreed(accounts)
    watch.at += CODE_SECONDS
    assert "over" in await refused(lambda: accounts.exchange(code, verifier=VERIFIER, redirect_uri=URI))
    issued = await signed_in(accounts)
    watch.at += ACCESS_SECONDS
    assert await accounts.bearer(issued.access_token) is None
    renewed = await accounts.refresh(issued.refresh_token)
    assert await accounts.bearer(renewed.access_token) is not None
    watch.at += REFRESH_SECONDS
    assert "over" in await refused(lambda: accounts.refresh(renewed.refresh_token))


async def test_a_refresh_token_used_twice_ends_the_grant(accounts: Accounts) -> None:
    issued = await signed_in(accounts)
    renewed = await accounts.refresh(issued.refresh_token)
    assert "used before" in await refused(lambda: accounts.refresh(issued.refresh_token))
    assert await accounts.bearer(renewed.access_token) is None
    assert "over" in await refused(lambda: accounts.refresh(renewed.refresh_token))


async def test_revoking_ends_both_tokens_of_that_grant_only(accounts: Accounts) -> None:
    one, other = await signed_in(accounts), await signed_in(accounts)
    await accounts.revoke("unknown")
    await accounts.revoke(one.refresh_token)
    assert await accounts.bearer(one.access_token) is None
    assert await accounts.bearer(other.access_token) is not None


async def test_all_of_a_person_are_revoked_and_nobody_elses(accounts: Accounts) -> None:
    hers, his = [await signed_in(accounts), await signed_in(accounts)], await signed_in(accounts, BOB)
    pending = await agreed(accounts)
    assert await accounts.revoke_all("alice@example.test") == 2
    assert await accounts.revoke_all("alice@example.test") == 0
    assert [await accounts.bearer(issued.access_token) for issued in hers] == [None, None]
    assert await accounts.bearer(his.access_token) is not None
    assert (await accounts.exchange(pending, verifier=VERIFIER, redirect_uri=URI)).access_token


async def test_an_issue_is_opened_once_per_key_of_a_person(accounts: Accounts) -> None:
    opened = [accounts.open_issue(ALICE, "Broken link", key="k") for _ in range(5)]
    assert len(set(await asyncio.gather(*opened))) == 1
    with pytest.raises(KeyReused):
        await accounts.open_issue(ALICE, "Another title", key="k")
    assert (await accounts.open_issue(BOB, "Another title", key="k")).number == 2
    assert [(issue.title, issue.author) for issue in await accounts.issues()] == [
        ("Broken link", "Alice"),
        ("Another title", "Bob"),
    ]


async def test_nothing_is_lost_with_the_process_and_no_token_stands_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "data" / "tracker.db"
    accounts = Accounts(path)
    code, issued, key = await agreed(accounts), await signed_in(accounts), accounts.form_key
    await accounts.open_issue(ALICE, "Broken link", key="k")
    again = Accounts(path)  # as after a kill: nobody closed the first
    assert again.form_key == key
    assert await again.bearer(issued.access_token) is not None
    assert (await again.exchange(code, verifier=VERIFIER, redirect_uri=URI)).access_token
    assert [issue.title for issue in await again.issues()] == ["Broken link"]
    for secret in (code, issued.access_token, issued.refresh_token):
        assert all(secret.encode() not in file.read_bytes() for file in path.parent.iterdir())
    accounts.close()
    again.close()
    with pytest.raises(sqlite3.ProgrammingError):
        await again.issues()
