"""Conversations and their turns: one mailbox each, one message after the other."""
