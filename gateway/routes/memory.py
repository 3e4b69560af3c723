"""/api/memory: read, correct, export and delete what the agent remembers."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict, Field

from agent.config import MemoryConfig
from agent.memory.schema import (
    DEFAULT_CATEGORY,
    DEFAULT_CONFIDENCE,
    MemoryDocument,
    document_to_json,
)
from agent.memory.scope import DEFAULT, MemoryScope, memory_scope
from agent.memory.service import MemoryService
from gateway.dependencies import AgentServicesDep
from gateway.openapi import error_responses

router = APIRouter(responses=error_responses(400, 404, 500))


class MemorySectionView(BaseModel):
    """One summary."""

    summary: str = ""
    updatedAt: str = Field(default="", description="ISO 8601 with zone; empty = never")  # noqa: N815 - the API's name


class UserContextView(BaseModel):
    """Summaries about the user's present."""

    workContext: MemorySectionView = Field(default_factory=MemorySectionView)  # noqa: N815
    personalContext: MemorySectionView = Field(default_factory=MemorySectionView)  # noqa: N815
    topOfMind: MemorySectionView = Field(default_factory=MemorySectionView)  # noqa: N815


class HistoryContextView(BaseModel):
    """Summaries about the past."""

    recentMonths: MemorySectionView = Field(default_factory=MemorySectionView)  # noqa: N815
    earlierContext: MemorySectionView = Field(default_factory=MemorySectionView)  # noqa: N815
    longTermBackground: MemorySectionView = Field(default_factory=MemorySectionView)  # noqa: N815


class MemoryFactView(BaseModel):
    """A remembered fact."""

    id: str = ""
    number: int = Field(
        default=0, description="The number by which people refer to it in chats; never reused"
    )
    content: str
    category: str = DEFAULT_CATEGORY
    confidence: float | None = Field(default=DEFAULT_CONFIDENCE, description="0 to 1")
    createdAt: str = Field(default="", description="When it was said or added")  # noqa: N815
    source: str = Field(default="unknown", description="A thread's ID, `manual` or `unknown`")
    message: str = Field(default="", description="The message of that thread that said it")
    speakerId: str = Field(default="", description="The platform's ID of the person who said it")  # noqa: N815
    speaker: str = Field(default="", description="Their name")
    sourceError: str | None = None  # noqa: N815


class MemoryDocumentView(BaseModel):
    """The memory of one scope and agent."""

    version: str = "1.0"
    lastUpdated: str = ""  # noqa: N815
    lastNumber: int = Field(default=0, description="The highest number of a fact so far")  # noqa: N815
    user: UserContextView = Field(default_factory=UserContextView)
    history: HistoryContextView = Field(default_factory=HistoryContextView)
    facts: list[MemoryFactView] = Field(default_factory=list)


class FactCreate(BaseModel):
    """A fact to add."""

    content: str
    category: str = DEFAULT_CATEGORY
    confidence: float = DEFAULT_CONFIDENCE


class FactUpdate(BaseModel):
    """Changes to a fact. Missing and null fields keep their values."""

    content: str | None = None
    category: str | None = None
    confidence: float | None = None


class MemoryConfigView(BaseModel):
    """The active configuration of memory."""

    model_config = ConfigDict(from_attributes=True)

    enabled: bool
    storage_path: str
    debounce_seconds: int
    max_calls_per_hour: int
    max_facts: int
    fact_confidence_threshold: float
    injection_enabled: bool
    max_injection_tokens: int


class MemoryStatusView(BaseModel):
    """The configuration and one document."""

    config: MemoryConfigView
    data: MemoryDocumentView


class MemoryScopeView(BaseModel):
    """A scope with memories; `facts` and `last_updated` describe the lead agent's document."""

    scope: str
    agents: list[str]
    facts: int
    last_updated: str


class MemoryScopeList(BaseModel):
    """All scopes with memories, sorted by name."""

    scopes: list[MemoryScopeView]


async def _get_memory(agent_services: AgentServicesDep) -> MemoryService:
    return agent_services.memory


async def _get_scope(
    scope: Annotated[str, Query(description="The person or group")] = DEFAULT,
    agent: Annotated[str, Query(description="A custom agent; empty = the lead agent")] = "",
) -> MemoryScope:
    return memory_scope(scope, agent)


MemoryDep = Annotated[MemoryService, Depends(_get_memory)]
ScopeDep = Annotated[MemoryScope, Depends(_get_scope)]

BAD_REQUEST: dict[int | str, dict[str, Any]] = {
    400: {"description": "The request is invalid; `detail` says why"}
}
NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"description": "The fact does not exist"}}


def _document_view(document: MemoryDocument) -> MemoryDocumentView:
    return MemoryDocumentView.model_validate(document_to_json(document))


def _config_view(config: MemoryConfig) -> MemoryConfigView:
    return MemoryConfigView.model_validate(config)


@router.get("/memory", responses=BAD_REQUEST, response_model_exclude_none=True)
async def get_memory(memory: MemoryDep, where: ScopeDep) -> MemoryDocumentView:
    """Return a document. It is empty if there are no memories."""
    return _document_view(await memory.get(where))


@router.delete("/memory", responses=BAD_REQUEST, response_model_exclude_none=True)
async def clear_memory(
    memory: MemoryDep, where: ScopeDep, agent_services: AgentServicesDep
) -> MemoryDocumentView:
    """Delete a document, or all documents of the scope without `agent`. Return the empty document.

    Without `agent`, also delete guardrail decisions, and keep the usage of the person or room only in sums.
    """
    if where.agent is None:
        await agent_services.usage.forget(where.scope)
        if (decisions := agent_services.guardrail_decisions) is not None:
            await decisions.forget(where.scope)
    return _document_view(await memory.clear(where))


@router.post("/memory/reload", responses=BAD_REQUEST, response_model_exclude_none=True)
async def reload_memory(memory: MemoryDep, where: ScopeDep) -> MemoryDocumentView:
    """Reload the documents from disk and return one."""
    return _document_view(await memory.reload(where))


@router.get("/memory/export", responses=BAD_REQUEST, response_model_exclude_none=True)
async def export_memory(memory: MemoryDep, where: ScopeDep) -> MemoryDocumentView:
    """Export a document."""
    return _document_view(await memory.get(where))


@router.post("/memory/import", responses=BAD_REQUEST, response_model_exclude_none=True)
async def import_memory(
    document: MemoryDocumentView, memory: MemoryDep, where: ScopeDep
) -> MemoryDocumentView:
    """Replace a document."""
    return _document_view(await memory.replace(where, document.model_dump(exclude_unset=True)))


@router.post("/memory/facts", responses=BAD_REQUEST, response_model_exclude_none=True)
async def create_fact(fact: FactCreate, memory: MemoryDep, where: ScopeDep) -> MemoryDocumentView:
    """Add a fact and return the document."""
    made = await memory.create_fact(where, fact.content, fact.category, fact.confidence)
    return _document_view(made)


@router.patch(
    "/memory/facts/{fact_id}", responses=BAD_REQUEST | NOT_FOUND, response_model_exclude_none=True
)
async def update_fact(
    fact_id: str, changes: FactUpdate, memory: MemoryDep, where: ScopeDep
) -> MemoryDocumentView:
    """Change a fact and return the document."""
    given = changes.model_dump(exclude_none=True)
    return _document_view(await memory.update_fact(where, fact_id, given))


@router.delete(
    "/memory/facts/{fact_id}", responses=BAD_REQUEST | NOT_FOUND, response_model_exclude_none=True
)
async def delete_fact(fact_id: str, memory: MemoryDep, where: ScopeDep) -> MemoryDocumentView:
    """Delete a fact and return the document."""
    return _document_view(await memory.delete_fact(where, fact_id))


@router.get("/memory/config")
async def get_config(memory: MemoryDep) -> MemoryConfigView:
    """Return the active configuration of memory."""
    return _config_view(memory.config)


@router.get("/memory/status", responses=BAD_REQUEST, response_model_exclude_none=True)
async def get_status(memory: MemoryDep, where: ScopeDep) -> MemoryStatusView:
    """Return the configuration and one document."""
    return MemoryStatusView(
        config=_config_view(memory.config), data=_document_view(await memory.get(where))
    )


@router.get("/memory/scopes")
async def list_scopes(memory: MemoryDep) -> MemoryScopeList:
    """List the scopes with memories."""
    found = [
        MemoryScopeView(
            scope=info.scope,
            agents=list(info.agents),
            facts=info.facts,
            last_updated=info.last_updated,
        )
        for info in await memory.list_scopes()
    ]
    return MemoryScopeList(scopes=found)
