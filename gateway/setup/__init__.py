"""Setup for `parley init` and `parley service`: prompts, configuration files, and files for systemd and launchd."""
