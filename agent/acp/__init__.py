"""Agents of other makers, called over the Agent Client Protocol."""
