"""How people reach an agent: verified events in, messages and cards out."""
