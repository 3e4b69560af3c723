"""Slack: receives events with Bolt over Socket Mode or HTTP, and sends through the Web API."""
