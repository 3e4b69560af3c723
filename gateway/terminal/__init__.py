"""The chat in a terminal: what a person types and reads, and the two ways to the bot."""
