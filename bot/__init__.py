"""Agents, tools and approvals: what an author writes and runs."""
