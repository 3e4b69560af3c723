"""Looks up assistants: one for each graph, one for each custom agent, and those created over the API."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastapi import HTTPException

from gateway.langgraph.custom_agents import find_agent_assistant, list_agent_assistants
from gateway.langgraph.route import parse_id
from gateway.langgraph.views import assistant_of_graph
from gateway.runtime.assistants import assistant_id_for_graph
from gateway.runtime.request import GraphRunRequest, merge_options, request_options
from gateway.services import Services
from store.assistants import Assistant, missing_assistant
from store.threads import Thread


async def list_assistants(services: Services) -> list[Assistant]:
    """Return all assistants: first the graphs', then the custom agents', then the others, oldest first."""
    made = {one.assistant_id: one for one in await services.runs.assistants.list_all()}
    always = [
        *map(assistant_of_graph, services.runs.graphs),
        *await list_agent_assistants(services),
    ]
    first = [made.pop(one.assistant_id, one) for one in always]
    return first + [one for one in made.values() if one.graph_id in services.runs.graphs]


async def get_assistant(services: Services, given: str) -> Assistant:
    """Return an assistant by its ID, its graph's name or its custom agent's name.

    Raises:
        HTTPException: 422 if it is neither a name nor an ID.
        RowNotFound: The assistant does not exist.
    """
    found = await _find_assistant(services, given)
    if found is not None:
        return found
    parse_id(given, "assistant")
    raise missing_assistant(given)


async def resolve_assistant(services: Services, request: GraphRunRequest) -> GraphRunRequest:
    """Return the request with the assistant's config and context as defaults. Raises InvalidRequest.

    If the assistant is unknown or has no settings, the request stays unchanged.
    """
    found = await _find_assistant(services, request.assistant_id)
    if found is None:
        return request
    own = found.config or found.context
    return replace(
        request,
        assistant_id=found.graph_id,
        shown_assistant_id=found.assistant_id,
        config=_merge_configs(found.config, request.config) if own else request.config,
        context=merge_options(found.config, found.context) | request_options(request)
        if own
        else request.context,
    )


async def last_assistant_id(services: Services, thread: Thread) -> str:
    """Return the assistant that last ran on a thread, or its graph if it was deleted. "" if there was no run."""
    used = str(thread.metadata.get("assistant_id") or "")
    if used and await _find_assistant(services, used) is not None:
        return used
    return str(thread.metadata.get("graph_id") or "")


def find_graph_assistant(services: Services, assistant_id: str) -> Assistant | None:
    """Return the built-in assistant of a graph; None if the ID belongs to no graph."""
    return next(
        (
            one
            for one in map(assistant_of_graph, services.runs.graphs)
            if one.assistant_id == assistant_id
        ),
        None,
    )


async def _find_assistant(services: Services, given: str) -> Assistant | None:
    wanted = (
        assistant_id_for_graph(given) if given in services.runs.graphs else _canonical_id(given)
    )
    made = await services.runs.assistants.find(wanted)
    if made is not None and made.graph_id in services.runs.graphs:
        return made
    return find_graph_assistant(services, wanted) or await find_agent_assistant(services, given)


def _canonical_id(given: str) -> str:
    try:
        return parse_id(given, "assistant")
    except HTTPException:
        return given


def _merge_configs(ours: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two configs. `configurable` comes from the request, because the context holds the assistant's options."""
    both = {**ours, **asked, "tags": [*(ours.get("tags") or ()), *(asked.get("tags") or ())]}
    both["metadata"] = {**(ours.get("metadata") or {}), **(asked.get("metadata") or {})}
    both["configurable"] = asked.get("configurable") or {}
    return both
