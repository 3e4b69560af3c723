"""Takeovers: a person answers in a conversation instead of the agent."""
