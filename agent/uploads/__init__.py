"""Files that users send: taken in safely, listed, deleted, and turned into text that the agent can read."""
