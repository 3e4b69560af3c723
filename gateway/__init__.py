"""The service: composition root, command line, configuration, HTTP, and the LangGraph-compatible API."""
