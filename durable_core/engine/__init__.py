"""The doing half of workflows: an engine that advances runs on a store, and the handles by which others see them.

What lives here: everything with I/O. What does not: the body's own loop and its replay (durable_core/replay.py), SQL.
"""
