"""The `guardrails` section."""

from agent.config.section import Section


class GuardrailsConfig(Section):
    """Whether tool calls are authorised before they run."""

    enabled: bool = False
