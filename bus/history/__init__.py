"""The history of conversations: earlier messages, rewinding, transcripts."""
