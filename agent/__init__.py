"""The agent: graph, middleware, tools, sandbox, memory, skills and models."""
