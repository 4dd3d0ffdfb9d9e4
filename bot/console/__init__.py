"""The console page of demo and dev: the thread a newcomer talks in, and what happened behind it.

What lives here: the page, its JSON API and the guards around both. What does not: the console's channel, the engine. Nothing is
loaded from here: a worker needs the board, not the page.
"""
