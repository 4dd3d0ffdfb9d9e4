"""Accounts elsewhere that tools act with: a person's, once they have signed in, or the app's own.

What lives here: connections as an author declares them, credentials, and what a call is lent of them. What does not: pages and
attempts of signing in (bot/signins), when a call waits for one (bot/session), ready-made connections (bot/oauth.py).
"""
