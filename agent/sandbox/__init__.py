"""Where the agent's files are: a protocol, and the fenced folders of this machine."""
