"""Slack: receives with Bolt over Socket Mode or HTTP, sends with the Web API."""
