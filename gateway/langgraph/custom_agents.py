"""Custom agents as assistants: each is the lead agent's graph with `agent_name` in its context."""

from agent.custom_agents import CustomAgent
from agent.errors import AgentInvalid, AgentNotFound
from gateway.langgraph.views import BUILT_IN_CREATED_AT
from gateway.runtime.assistants import assistant_id_for_graph
from gateway.services import Services
from store.assistants import Assistant


async def list_agent_assistants(services: Services) -> list[Assistant]:
    """Return one assistant for each custom agent."""
    return [
        _build_assistant(services, agent)
        for agent in await services.agent_services.custom_agents.list_agents()
    ]


async def find_agent_assistant(services: Services, given: str) -> Assistant | None:
    """Return the assistant of a custom agent, by its ID or the agent's name. None if it does not exist."""
    try:
        # SDKs write `code_reviewer` where the agent is `code-reviewer`.
        return _build_assistant(
            services, await services.agent_services.custom_agents.get(given.replace("_", "-"))
        )
    except (AgentNotFound, AgentInvalid):
        known = await list_agent_assistants(services)
    return next((one for one in known if one.assistant_id == given.lower()), None)


def _build_assistant(services: Services, agent: CustomAgent) -> Assistant:
    return Assistant(
        assistant_id=assistant_id_for_graph(agent.name),
        graph_id=next(iter(services.runs.graphs)),
        name=agent.name,
        description=agent.description or None,
        context={"agent_name": agent.name},
        metadata={"created_by": "user"},
        created_at=BUILT_IN_CREATED_AT,
        updated_at=BUILT_IN_CREATED_AT,
        version_created_at=BUILT_IN_CREATED_AT,
    )
