"""Conversations and their turns: each conversation has one queue and answers in order."""
