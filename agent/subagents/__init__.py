"""Work that the agent hands to agents of its own."""
