"""Shared parts of platform adapters: connection loop, health, rate limits, greeting, background tasks, webhooks."""
