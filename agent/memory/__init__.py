"""What the agent remembers of people and rooms: documents, their updates, and their place in the prompt."""
