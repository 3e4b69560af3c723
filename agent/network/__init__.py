"""The network that this machine is in, and what strangers may have it ask for."""
