"""Chat platforms, one package each: events in, replies out. Knows the bus, nothing else of ours."""
