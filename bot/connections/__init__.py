"""Accounts of people and of the app at other services.

What lives here: connections, their credentials, and OAuth as a client. What does not: the pages of a sign-in, the turn.
"""
