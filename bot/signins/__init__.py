"""Signing in: from a pressed Connect to the account being there, driven by stages in the database.

What lives here: attempts, their stages, who proves what, settling. What does not: HTTP routes and pages (bot/server/), an OAuth
provider's protocol (bot/connections/protocol/), tokens once they are kept (bot/connections/).
"""
