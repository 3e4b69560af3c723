"""Delegation: subagent types, the executor that runs them, and the `task` tool."""
