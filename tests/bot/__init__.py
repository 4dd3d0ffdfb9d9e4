"""Tests of the bot package; one file a module."""
