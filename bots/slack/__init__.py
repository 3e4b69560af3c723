"""Slack: receives with Bolt over Socket Mode or HTTP, and sends with the Web API."""
