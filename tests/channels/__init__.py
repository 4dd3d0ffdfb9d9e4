"""Tests of the channels package."""
