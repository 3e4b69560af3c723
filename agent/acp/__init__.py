"""Agents of other makers, asked over the Agent Client Protocol."""
