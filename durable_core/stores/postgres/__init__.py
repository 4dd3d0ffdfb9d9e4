"""The PostgreSQL store: one pool of connections, one run row locked before what belongs to it.

What lives here: one file an aggregate, as for SQLite. What does not: what both databases share (`stores/rows.py`).
"""
