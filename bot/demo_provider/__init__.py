"""The demo's own account provider: it stands in for a GitHub or a Google, on this machine and with no password.

What lives here: accounts, grants, tokens, a small issue tracker, and the pages and calls that serve them under /demo. What does
not: the app that signs in there (demo.py).
"""
