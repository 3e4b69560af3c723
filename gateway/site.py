"""Where the agent lives that a configuration describes."""

from agent.systems import Site
from gateway.config import Config


def site_of(config: Config) -> Site:
    """Return where the agent lives."""
    return Site(
        config=config.agent,
        home=config.home,
        extensions=config.extensions,
        base=config.source.parent if config.source else None,
        environment=config.environment,
        tracing=config.tracing,
    )
