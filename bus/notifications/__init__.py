"""Notifications: messages that clients of the API send to one chat, or to many (broadcasts)."""
