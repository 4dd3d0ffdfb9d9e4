"""Who somebody is beyond their messages: Sign in with Slack, confirmed addresses, and links into the conversation."""

from __future__ import annotations

import pytest

from channels import Author, BadAddress, DeliveryFailed, Identifies, KnowsEmail, Linkable, Outbound, RateLimited, Standing
from channels.slack import Slack
from channels.slack.address import SlackAddress
from tests.channels.slack.deliveries import delivery
from tests.channels.slack.fake import CHANNEL, ROOT, TEAM, MiniSlack, dropped, refusal, seen
from tests.channels.slack.payloads import Json

THREAD = SlackAddress("", TEAM, CHANNEL, ROOT).encode()
ALICE = Author("U1", "Alice", standing=Standing.MEMBER, tenancy=TEAM)
USER, WORKSPACE, ORGANISATION = (f"https://slack.com/{name}_id" for name in ("user", "team", "enterprise"))
LINK = "[Connect GitHub](https://bot.example/connect/a.b)"


def with_client(api_url: str | None = None) -> Slack:
    return Slack(bot_token="xoxb-test", signing_secret="s", client_id="1.2", client_secret="hidden", api_url=api_url)


def test_slack_does_all_of_it(slack: Slack) -> None:
    assert isinstance(slack, Identifies)
    assert isinstance(slack, KnowsEmail)
    assert isinstance(slack, Linkable)


def test_the_sign_in_is_slacks_own() -> None:
    """https://slack.com/.well-known/openid-configuration."""
    found = with_client().identity()
    assert found is not None
    assert found.issuer == "https://slack.com"
    assert found.authorize_url == "https://slack.com/openid/connect/authorize"
    assert found.token_url == "https://slack.com/api/openid.connect.token"
    assert found.userinfo_url == "https://slack.com/api/openid.connect.userInfo"
    assert found.jwks_url == "https://slack.com/openid/connect/keys"
    assert (found.client_id, found.client_secret, found.scopes, found.pkce) == ("1.2", "hidden", ("openid", "profile"), False)
    assert found.extra == {}
    assert "hidden" not in repr(found)


def test_an_address_leads_to_its_workspace() -> None:
    found = with_client().identity(THREAD)
    assert found is not None
    assert found.extra == {"team": TEAM}


def test_the_sign_in_is_beside_the_api_that_is_set() -> None:
    found = with_client(api_url="https://slack-gov.com/api/").identity()
    assert found is not None
    assert (found.issuer, found.token_url) == ("https://slack-gov.com", "https://slack-gov.com/api/openid.connect.token")


def test_a_client_is_read_from_the_environment_and_half_of_one_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    slack = Slack(bot_token="xoxb-test", signing_secret="s")
    monkeypatch.delenv("SLACK_CLIENT_ID", raising=False)
    monkeypatch.delenv("SLACK_CLIENT_SECRET", raising=False)
    assert (slack.identity(), slack.problems()) == (None, ())
    monkeypatch.setenv("SLACK_CLIENT_ID", "1.2")
    (problem,) = slack.problems()
    assert "SLACK_CLIENT_SECRET" in problem
    assert slack.identity() is None
    monkeypatch.setenv("SLACK_CLIENT_SECRET", "hidden")
    assert slack.problems() == ()
    assert slack.identity() is not None


@pytest.mark.parametrize(
    ("claims", "tenancy", "author"),
    [
        ({USER: "U1", WORKSPACE: "T1"}, None, ("T1", "U1")),
        ({USER: "U1", WORKSPACE: "T1"}, "T2", ("T1", "U1")),
        ({USER: "U1", WORKSPACE: "T1", ORGANISATION: "E1"}, "E1", ("E1", "U1")),
        ({USER: "U1", WORKSPACE: "T1", ORGANISATION: "E1"}, "T1", ("T1", "U1")),
        ({USER: "U1", WORKSPACE: "T1", ORGANISATION: "E1"}, "E2", ("T1", "U1")),
        ({USER: "U1", WORKSPACE: "T1", ORGANISATION: ""}, "", ("T1", "U1")),
        ({"sub": "U1", "team_id": "T1"}, None, None),
        ({USER: "U1"}, None, None),
        ({WORKSPACE: "T1"}, None, None),
        ({USER: "U1:x", WORKSPACE: "T1"}, None, None),
        ({USER: ["U1"], WORKSPACE: "T1"}, None, None),
    ],
)
def test_claims_name_whom_slack_proved_and_nobody_else(
    claims: dict[str, object], tenancy: str | None, author: tuple[str, str] | None
) -> None:
    assert with_client().author_of(claims, tenancy) == author


CONFIRMED: Json = {"id": "U1", "team_id": TEAM, "profile": {"email": "alice@harbour.example"}, "is_email_confirmed": True}


async def test_a_confirmed_address_is_told(world: MiniSlack, slack: Slack) -> None:
    world.users["U1"] = CONFIRMED
    assert await slack.email_of(THREAD, ALICE) == "alice@harbour.example"


@pytest.mark.parametrize(
    "changed",
    [
        {"profile": {}},
        {"profile": {"email": ""}},
        {"profile": {"email": None}},
        {"is_email_confirmed": False},
        {"is_email_confirmed": "yes"},
        {"deleted": True},
        {"is_bot": True},
        {"is_stranger": True},
        {"team_id": "T9"},
    ],
    ids=str,
)
async def test_what_slack_does_not_vouch_for_is_no_address(world: MiniSlack, slack: Slack, changed: Json) -> None:
    """Another organisation may give its people any address: it would pass for one of ours."""
    world.users["U1"] = CONFIRMED | changed
    assert await slack.email_of(THREAD, ALICE) is None


async def test_without_the_scope_there_is_no_address_and_no_error(world: MiniSlack, slack: Slack) -> None:
    world.before["users.info"].append(refusal("missing_scope", needed="users:read"))
    assert await slack.email_of(THREAD, ALICE) is None


@pytest.mark.parametrize("fault", [refusal("fatal_error"), refusal("x", status=500), refusal("ratelimited", status=429)])
async def test_a_failure_is_not_taken_for_no_address(world: MiniSlack, slack: Slack, fault: object) -> None:
    world.before["users.info"].append(fault)  # type: ignore[arg-type]
    with pytest.raises((DeliveryFailed, RateLimited)):
        await slack.email_of(THREAD, ALICE)


async def test_an_address_that_changed_counts_within_half_a_minute(world: MiniSlack, slack: Slack) -> None:
    world.users["U1"] = CONFIRMED
    await slack.email_of(THREAD, ALICE)
    world.users["U1"] = CONFIRMED | {"profile": {"email": "new@harbour.example"}}
    world.now_ms += 30_001
    assert await slack.email_of(THREAD, ALICE) == "new@harbour.example"


async def test_a_thread_has_slacks_permalink_asked_for_once(world: MiniSlack, slack: Slack) -> None:
    link = await slack.link_to(THREAD)
    assert link == f"https://harbour.slack.com/archives/{CHANNEL}/p{ROOT.replace('.', '')}"
    assert await slack.link_to(THREAD) == link
    assert len(world.bodies("chat.getPermalink")) == 1


async def test_a_direct_message_has_a_link_without_asking(world: MiniSlack, slack: Slack) -> None:
    link = await slack.link_to(SlackAddress("", TEAM, "D7", None).encode())
    assert link is not None
    assert link.endswith(f"/app_redirect?team={TEAM}&channel=D7")
    assert world.calls == []


@pytest.mark.parametrize(
    "fault", [refusal("message_not_found"), refusal("x", status=500), refusal("ratelimited", headers={"Retry-After": "1"})]
)
async def test_where_slack_gives_no_link_there_is_none_for_now(world: MiniSlack, slack: Slack, fault: object) -> None:
    world.before["chat.getPermalink"].append(fault)  # type: ignore[arg-type]
    assert await slack.link_to(THREAD) is None
    world.now_ms += 61_000
    assert await slack.link_to(THREAD) is not None


@pytest.mark.parametrize(
    "link",
    [
        "https://slack.com.evil.example/archives/C1/p1",
        "https://evilslack.com/archives/C1/p1",
        "http://harbour.slack.com/archives/C1/p1",
        "https://slack.com@evil.example/",
        "https://u:p@harbour.slack.com/",
        "javascript:alert(1)//slack.com",
        "https://[/",
        "",
        None,
        5,
    ],
)
async def test_what_leads_elsewhere_is_no_link(
    world: MiniSlack, slack: Slack, monkeypatch: pytest.MonkeyPatch, link: object
) -> None:
    monkeypatch.setattr(world, "do_chat_getPermalink", lambda _body: {"permalink": link})
    assert await slack.link_to(THREAD) is None


async def test_what_is_no_address_is_refused(slack: Slack) -> None:
    for call in (slack.link_to, lambda address: slack.email_of(address, ALICE)):
        with pytest.raises(BadAddress):
            await call("slack:v1:nothing")


# What is told with a link


async def test_private_words_with_a_link_are_a_direct_message_that_unfolds_nothing(world: MiniSlack, slack: Slack) -> None:
    ref = await slack.send(delivery(Outbound(LINK, notice=True, private_to="UALICE")))
    assert world.messages[CHANNEL] == []
    (shown,) = world.messages["DUALICE"]
    assert (shown["unfurl_links"], shown["unfurl_media"]) == (False, False)
    assert seen(shown) == "<https://bot.example/connect/a.b|Connect GitHub>"
    assert ref.id == f"DUALICE/{shown['ts']}"


async def test_they_are_found_again_and_not_told_twice(world: MiniSlack, slack: Slack) -> None:
    world.after["chat.postMessage"].append(dropped)
    told = Outbound(LINK, notice=True, private_to="UALICE")
    with pytest.raises(DeliveryFailed):
        await slack.send(delivery(told))
    await slack.send(delivery(told, attempt=2))
    assert len(world.messages["DUALICE"]) == 1


async def test_in_the_conversation_with_them_they_come_in_its_thread(world: MiniSlack, slack: Slack) -> None:
    address = SlackAddress("", TEAM, "DUALICE", "1799999001.000100").encode()
    await slack.send(delivery(Outbound(LINK, notice=True, private_to="UALICE"), address=address))
    (shown,) = world.messages["DUALICE"]
    assert shown["thread_ts"] == "1799999001.000100"


async def test_they_go_nowhere_else_where_there_is_no_direct_message(world: MiniSlack, slack: Slack) -> None:
    world.before["conversations.open"].append(refusal("user_disabled"))
    with pytest.raises(DeliveryFailed) as lost:
        await slack.send(delivery(Outbound(LINK, notice=True, private_to="UALICE")))
    assert lost.value.permanent
    assert dict(world.messages) == {}
