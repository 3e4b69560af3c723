"""External agents, called over the Agent Client Protocol (ACP)."""
