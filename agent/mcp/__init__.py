"""MCP servers: configuration, sessions, OAuth, and their tools as LangChain tools."""
