"""Tools of MCP servers: configuration, sessions, OAuth, and the servers' tools as LangChain tools."""
