"""Whole engines in processes of their own, killed, frozen, cut off and overloaded; what must hold is checked at the end.

What lives here: one fault a file. What does not: the store's contract (conformance), single mechanisms (beside them).
A plain run does a small, seeded part of each; `MOORINGS_TEST_FULL=1` does all.
"""
