"""Assistants: one for every graph, always there, and one for every custom agent."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.langgraph.agents import agent_views
from gateway.langgraph.route import Refused, WireRoute, answer, checked_id, read_body
from gateway.langgraph.services import LangGraphServices, services_of
from gateway.langgraph.views import View, assistant_view
from gateway.langgraph.wire import AssistantSearch

router = APIRouter(tags=["assistants"], route_class=WireRoute)


@router.post("/assistants/search", response_model=None)
async def search(request: Request) -> Response:
    """List assistants."""
    query = await read_body(request, AssistantSearch)
    found = await _matching(services_of(request), query)
    page = found[query.offset : query.offset + query.limit]
    return answer(page, headers={"X-Pagination-Total": str(len(found))})


@router.post("/assistants/count", response_model=None)
async def count(request: Request) -> Response:
    """Count assistants."""
    query = await read_body(request, AssistantSearch)
    return answer(len(await _matching(services_of(request), query)))


@router.get("/assistants/{assistant_id}", response_model=None)
async def get(request: Request, assistant_id: str) -> Response:
    """Return one assistant, by its id or by its name."""
    views = await _views(services_of(request))
    for view in views:
        if view["name"] == assistant_id:
            return answer(view)
    wanted = checked_id(assistant_id, "assistant")
    for view in views:
        if view["assistant_id"] == wanted:
            return answer(view)
    raise Refused(404, f"Assistant with ID {assistant_id} not found")


async def _views(services: LangGraphServices) -> list[View]:
    views = [assistant_view(graph_id) for graph_id in services.graphs]
    return [*views, *await agent_views(services)]


async def _matching(services: LangGraphServices, query: AssistantSearch) -> list[View]:
    views = await _views(services)
    metadata = query.metadata or {}
    return [
        view
        for view in views
        if query.graph_id in {None, view["graph_id"]}
        and (query.name or "").lower() in view["name"].lower()
        and all(view["metadata"].get(key) == value for key, value in metadata.items())
    ]
