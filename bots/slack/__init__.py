"""Slack: Bolt over Socket Mode in, Web API out."""
