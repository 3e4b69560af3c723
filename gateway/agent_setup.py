"""Creates the agent's setup from the configuration."""

from agent.services import AgentSetup
from agent.tracing import HandlerFactory
from gateway.config import Config


def agent_setup_from_config(config: Config, run_tracer: HandlerFactory | None = None) -> AgentSetup:
    """Return the agent's settings, folders and environment. `run_tracer` is added to the configured tracers."""
    return AgentSetup(
        config=config.agent,
        home=config.home,
        storage=config.storage,
        extensions=config.extensions,
        base_dir=config.source.parent if config.source else None,
        environment=config.environment,
        tracing=config.tracing,
        run_tracer=run_tracer,
    )
