"""Guardrails: decide whether a tool call may run."""
