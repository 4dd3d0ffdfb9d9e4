"""Tests of everything; the folders mirror the packages."""
