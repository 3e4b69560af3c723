"""Custom agents as assistants: each is the lead agent's graph with `agent_name` in its context."""

from dataclasses import replace

from agent.agents import CustomAgent
from agent.errors import AgentInvalid, AgentNotFound
from agent.runtime.assistants import assistant_id_of
from agent.runtime.request import RunRequest
from gateway.langgraph.services import LangGraphServices
from gateway.langgraph.views import View, assistant_view


async def agent_views(services: LangGraphServices) -> list[View]:
    """Return the assistants that custom agents are."""
    if services.agents is None:
        return []
    return [_view(services, agent) for agent in await services.agents.listed()]


async def as_agent(services: LangGraphServices, request: RunRequest) -> RunRequest:
    """Return the request with the custom agent in its context that its assistant stands for.

    One whose assistant is a graph, or nothing that is known, is returned as it is.
    """
    given = request.assistant_id.lower()
    if request.assistant_id in services.graphs or services.agents is None:
        return request
    if any(assistant_id_of(graph_id) == given for graph_id in services.graphs):
        return request
    name = await _named(services, given)
    if name is None:
        return request
    context = {"agent_name": name, **request.context}
    return replace(request, assistant_id=next(iter(services.graphs)), context=context)


async def _named(services: LangGraphServices, given: str) -> str | None:
    """Return the agent that an assistant's name or id stands for."""
    if services.agents is None:
        return None
    try:
        # SDKs write `code_reviewer` where the agent is `code-reviewer`.
        return (await services.agents.named(given.replace("_", "-"))).name
    except (AgentNotFound, AgentInvalid):
        listed = await services.agents.listed()
    return next((agent.name for agent in listed if assistant_id_of(agent.name) == given), None)


def _view(services: LangGraphServices, agent: CustomAgent) -> View:
    return {
        **assistant_view(next(iter(services.graphs))),
        "assistant_id": assistant_id_of(agent.name),
        "context": {"agent_name": agent.name},
        "metadata": {"created_by": "user"},
        "name": agent.name,
        "description": agent.description or None,
    }
