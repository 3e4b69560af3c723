"""The `agents_api` section."""

from agent.config.section import Section


class AgentsApiConfig(Section):
    """Whether custom agents and the user profile can be read and written over REST.

    On by default: every route here wants the admin token.
    """

    enabled: bool = True
