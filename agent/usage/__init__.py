"""Counts what model calls use, and keeps to the limits."""
