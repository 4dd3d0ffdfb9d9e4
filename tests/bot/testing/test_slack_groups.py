"""A user group of Slack approves: the whole way from a mention to a click, in a Slack that says who is in it."""

from __future__ import annotations

from bot import Agent, Approval, Bot, ToolContext, group, tool
from bot.testing import FakeSlack, running
from channels.slack import Slack


@tool(approval=Approval(by=group("finance"), by_text="Finance"))
async def refund_charge(ctx: ToolContext[None], charge_id: str, amount: str) -> str:
    """Refund a charge."""
    who = ctx.approval.responder.name if ctx.approval else "nobody"
    return f"Refunded {amount}, approved by {who}."


async def test_whoever_is_in_the_user_group_approves_and_nobody_else() -> None:
    async with FakeSlack() as world:
        finance = world.add_usergroup("bob")
        slack = Slack(bot_token=world.token, signing_secret=world.signing_secret, api_url=world.api_url)
        bot = Bot(
            agents=[Agent("support", "scripted", tools=[refund_charge])],
            channels=[slack],
            groups={"finance": slack.usergroup(finance)},
        )
        async with running(bot, slack=world):
            asked = await world.mention("alice", "general", "refund 20 for ch_1")
            card = await world.until(lambda: world.card(asked))
            await world.click(card, "Approve", "alice")
            refused = await world.until(lambda: world.whispers("alice"))
            assert "Only Finance may answer this." in refused[0].words
            await world.click(card, "Approve", "bob")
            (reply,) = await world.until(lambda: world.replies(asked)[1:])
            assert "approved by bob" in reply.words.lower()
            assert len(world.made("usergroups.users.list")) == 1  # asked of bob alone: the requester doesn't count anyway
