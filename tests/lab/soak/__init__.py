"""Soak test: hours of turns with faults on the real service; what it uses must not grow."""
