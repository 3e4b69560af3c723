"""Composition root, command line, configuration, HTTP, LangGraph-compatible API."""
