"""Creates the agent's setup from the configuration."""

from agent.services import AgentSetup
from gateway.config import Config


def agent_setup_from_config(config: Config) -> AgentSetup:
    """Return the agent's settings, folders and environment."""
    return AgentSetup(
        config=config.agent,
        home=config.home,
        extensions_path=config.extensions,
        base_dir=config.source.parent if config.source else None,
        environment=config.environment,
        tracing=config.tracing,
    )
