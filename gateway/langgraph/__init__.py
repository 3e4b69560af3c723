"""The LangGraph-compatible API."""
