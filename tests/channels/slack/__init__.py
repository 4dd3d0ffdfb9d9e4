"""The Slack channel, against a small strict Slack of its own."""
