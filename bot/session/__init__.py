"""The shell around the turn engine: loads a session under its claim, does what the engine decides, commits.

What lives here: doing. What does not: deciding (bot/turn/), SQL (durable_core), reaching people (ingress, egress).
"""
