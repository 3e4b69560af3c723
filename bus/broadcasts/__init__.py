"""Broadcasts: messages of an administrator to many chats."""
