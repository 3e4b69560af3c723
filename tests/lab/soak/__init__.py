"""Soak test: hours of turns with faults on the real service, whose resources must not grow."""
