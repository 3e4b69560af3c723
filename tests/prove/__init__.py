"""`parley prove`: the real service under faults, and a verdict on every message."""
