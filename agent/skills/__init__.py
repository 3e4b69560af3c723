"""Skills: folders with a SKILL.md that tells the agent how to do something."""
