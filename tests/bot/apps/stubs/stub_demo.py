"""A bot that is nothing."""

from bot.app import Bot

bot = Bot(agents=[])
