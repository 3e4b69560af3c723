"""Messages in, replies out: inbox, conversations, delivery. Knows the store; meets the agent over the wire."""
