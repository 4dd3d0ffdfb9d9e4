"""Apps and stand-ins that the tests of the command run in real processes."""
