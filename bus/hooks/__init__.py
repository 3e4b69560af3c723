"""Hooks: signed events of other systems that become messages to the agent."""
