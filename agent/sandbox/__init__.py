"""Sandboxes: confined file access and command execution for the agent."""
