"""Where the agent lives that a configuration describes."""

from agent.services import AgentSetup
from gateway.config import Config


def site_of(config: Config) -> AgentSetup:
    """Return where the agent lives."""
    return AgentSetup(
        config=config.agent,
        home=config.home,
        extensions_path=config.extensions,
        base_dir=config.source.parent if config.source else None,
        environment=config.environment,
        tracing=config.tracing,
    )
