"""Runs of any compiled graph: started, streamed, joined, cancelled. Knows nothing of HTTP, nor of our agent."""
