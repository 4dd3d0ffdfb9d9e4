"""What must survive: runs, steps, prompts, streams and the outbox."""
