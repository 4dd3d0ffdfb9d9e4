"""Stores: implementations of `durable_core.store.Store`.

What lives here: what all of them share, and one folder a database. What does not: the contract (`durable_core/store.py`).
"""
