"""The HTTP server: the session API, webhooks of channels, health."""
