"""Stored values as each version wrote them, and a database as the first revision kept it; never written again.

`v1/bodies.json` and later ones are made by `python -m tests.durable_core.samples.make`, once, by the version that introduces the
format; workflow runs are in them from `v2` on. `0001/` is a database of that revision: its schema, and rows with a parked, an
idle and an interrupted session.
"""
