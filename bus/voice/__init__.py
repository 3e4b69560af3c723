"""Voice: transcribes the speech that people send, for the agent and for the person who sent it."""
