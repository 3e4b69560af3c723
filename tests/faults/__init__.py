"""Injected faults: every store call and every adapter call of a turn fails once, in each way."""
