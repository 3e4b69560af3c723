"""The `agents_api` section."""

from agent.config.section import Section


class AgentsApiConfig(Section):
    """Whether custom agents and the user profile can be read and written over REST.

    On by default, because all of these routes require the admin token.
    """

    enabled: bool = True
