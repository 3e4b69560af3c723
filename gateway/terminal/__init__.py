"""The chat in a terminal: input, output, and the two connections to the bot."""
