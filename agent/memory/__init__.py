"""Long-term memory of people and rooms: documents, their updates, and their block in the prompt."""
