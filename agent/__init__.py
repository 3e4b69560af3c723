"""The super-agent: graph, middleware, tools, sandbox, models, runs."""
