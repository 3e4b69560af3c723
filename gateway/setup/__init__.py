"""Setup: prompts, credential checks, configuration files, and the report of `parley doctor`."""
