"""Benchmarks: `python -m tests.bench [name…] [--peers]` prints a Markdown table. No time is asserted, pytest collects none.

What lives here: one file a subject, each a coroutine that returns rows. What does not: limits; read ratios of adjacent runs.
"""
