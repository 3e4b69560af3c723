"""Files that people send: accepted safely, converted to Markdown, listed for the agent."""
