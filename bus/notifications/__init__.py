"""Notifications: messages that API clients send to one chat, or to many (broadcasts)."""
