"""The terminal channel: its adapter and the sessions that terminals attach to."""
