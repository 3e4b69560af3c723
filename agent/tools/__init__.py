"""Tools of the agent: built-in ones and those of the configuration."""
