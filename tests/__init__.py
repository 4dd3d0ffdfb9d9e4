"""Tests of the three packages; the tree mirrors the source."""
