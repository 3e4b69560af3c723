"""/api/agents and /api/user-profile: custom agents, and the user profile that all agents share."""

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query
from pydantic import BaseModel, Field

from agent.custom_agents import MAX_SOUL_CHARS, CustomAgent, normalize_agent_name, require_known
from gateway.dependencies import AgentServicesDep
from gateway.openapi import error_responses
from gateway.shared_files import SharedFilesRoute


async def _require_enabled(agent_services: AgentServicesDep) -> None:
    if not agent_services.config.get().agents_api.enabled:
        raise HTTPException(403, "agents_api.enabled is false: custom agents cannot be managed.")


router = APIRouter(
    route_class=SharedFilesRoute,
    dependencies=[Depends(_require_enabled)],
    responses=error_responses(403, 404, 409, 500),
)


class AgentUpdate(BaseModel):
    """The fields of an agent. In an update, missing fields keep their values."""

    description: str = Field(default="", max_length=1024)
    model: str | None = None
    tool_groups: list[str] | None = None
    skills: list[str] | None = None
    soul: str = Field(default="", max_length=MAX_SOUL_CHARS)


class AgentCreate(AgentUpdate):
    """A new agent."""

    name: str


class AgentView(AgentUpdate):
    """A custom agent."""

    name: str


class AgentList(BaseModel):
    """All agents."""

    agents: list[AgentView]


class AgentNameCheck(BaseModel):
    """Whether a name is available; `name` is its stored form."""

    available: bool
    name: str


class UserProfile(BaseModel):
    """USER.md: facts about the users, which all agents know."""

    content: str = Field(max_length=MAX_SOUL_CHARS)


@router.get("/agents")
async def list_agents(agent_services: AgentServicesDep) -> AgentList:
    """List the custom agents."""
    return AgentList(
        agents=[_view(agent) for agent in await agent_services.custom_agents.list_agents()]
    )


@router.post("/agents", status_code=201)
async def create_agent(body: AgentCreate, agent_services: AgentServicesDep) -> AgentView:
    """Create a custom agent."""
    require_known(agent_services.config.get(), body.model, body.tool_groups)
    fields = body.model_dump()
    return _view(await agent_services.custom_agents.create(CustomAgent.model_validate(fields)))


@router.get("/agents/check")
async def check_name(
    name: Annotated[str, Query()], agent_services: AgentServicesDep
) -> AgentNameCheck:
    """Check whether a name is available."""
    return AgentNameCheck(
        available=not await agent_services.custom_agents.exists(name),
        name=normalize_agent_name(name),
    )


@router.get("/agents/{name}")
async def get_agent(name: str, agent_services: AgentServicesDep) -> AgentView:
    """Return a custom agent."""
    return _view(await agent_services.custom_agents.get(name))


@router.put("/agents/{name}")
async def update_agent(name: str, body: AgentUpdate, agent_services: AgentServicesDep) -> AgentView:
    """Change fields of a custom agent."""
    require_known(agent_services.config.get(), body.model, body.tool_groups)
    fields = body.model_dump(exclude_unset=True)

    def changed(old: CustomAgent) -> CustomAgent:
        return CustomAgent.model_validate({**old.model_dump(), **fields})

    return _view(await agent_services.custom_agents.update(name, changed))


@router.delete("/agents/{name}", status_code=204)
async def delete_agent(name: str, agent_services: AgentServicesDep) -> None:
    """Delete a custom agent and its files."""
    await agent_services.custom_agents.delete(name)


@router.get("/user-profile")
async def get_user_profile(agent_services: AgentServicesDep) -> UserProfile:
    """Return USER.md."""
    return UserProfile(content=await agent_services.custom_agents.load_profile())


@router.put("/user-profile")
async def update_user_profile(body: UserProfile, agent_services: AgentServicesDep) -> UserProfile:
    """Replace USER.md."""
    await agent_services.custom_agents.write_profile(body.content)
    return body


def _view(agent: CustomAgent) -> AgentView:
    return AgentView.model_validate(agent.model_dump(exclude={"made_by"}))
