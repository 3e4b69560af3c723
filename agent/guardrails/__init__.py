"""Whether a tool call may run: the question, the answer, and who answers."""
