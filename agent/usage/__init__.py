"""Counts the usage of model calls, and enforces limits."""
