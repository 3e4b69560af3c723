"""The `subagents` section."""

from pydantic import Field

from agent.config.section import Section


class SubagentsConfig(Section):
    """How work is delegated."""

    enabled: bool = True
    max_concurrent: int = Field(default=3, ge=1, le=4)
    timeout_seconds: float = Field(default=900.0, gt=0)
