"""The `memory` section."""

from agent.config.section import Section


class MemoryConfig(Section):
    """Whether the agent remembers, and whether what it remembers goes into its prompt."""

    enabled: bool = True
    injection_enabled: bool = True
