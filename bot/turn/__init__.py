"""The turn engine: a pure core that decides and words what a session does next.

What lives here: state, decisions, changes. What does not: models, tools, SQL, clocks (bot/session/).
"""
