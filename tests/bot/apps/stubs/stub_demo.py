"""A bot that is nothing."""

bot = object()
