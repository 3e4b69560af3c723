"""Tools of the agent: built-in and configured ones."""
