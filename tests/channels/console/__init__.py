"""The console channel and its platform."""
