"""Delegation: kinds of subagents, the executor that runs them, and the tool that asks for them."""
