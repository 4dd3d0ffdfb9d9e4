"""The Slack channel: mentions, direct messages, threads, cards with buttons.

What lives here: the names that an app needs. What does not: sessions, approvals, or who may do what.
"""

from channels.slack.channel import Slack

__all__ = ["Slack"]
