"""Slack: Bolt over Socket Mode."""
