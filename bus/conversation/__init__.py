"""Conversations and their turns: one queue each, in order."""
