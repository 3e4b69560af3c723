"""/api/memory: what the agent remembers of a person or a room, and the ways to correct it."""

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
from gateway.deps import Parts
from gateway.description import problems

router = APIRouter(responses=problems(400, 404, 500))


class MemorySectionView(BaseModel):
    """One summary."""

    summary: str = ""
    updatedAt: str = Field(default="", description="ISO 8601 with zone; empty = never")  # noqa: N815 - the API's name


class UserContext(BaseModel):
    """How things stand."""

    workContext: MemorySectionView = Field(default_factory=MemorySectionView)  # noqa: N815
    personalContext: MemorySectionView = Field(default_factory=MemorySectionView)  # noqa: N815
    topOfMind: MemorySectionView = Field(default_factory=MemorySectionView)  # noqa: N815


class HistoryContext(BaseModel):
    """What happened."""

    recentMonths: MemorySectionView = Field(default_factory=MemorySectionView)  # noqa: N815
    earlierContext: MemorySectionView = Field(default_factory=MemorySectionView)  # noqa: N815
    longTermBackground: MemorySectionView = Field(default_factory=MemorySectionView)  # noqa: N815


class MemoryFactView(BaseModel):
    """Something held to be true."""

    id: str = ""
    content: str
    category: str = DEFAULT_CATEGORY
    confidence: float | None = Field(default=DEFAULT_CONFIDENCE, description="0 to 1")
    createdAt: str = ""  # noqa: N815
    source: str = Field(default="unknown", description="a thread's id, manual, or unknown")
    sourceError: str | None = None  # noqa: N815


class MemoryDocumentView(BaseModel):
    """All that is remembered in one place."""

    version: str = "1.0"
    lastUpdated: str = ""  # noqa: N815
    user: UserContext = Field(default_factory=UserContext)
    history: HistoryContext = Field(default_factory=HistoryContext)
    facts: list[MemoryFactView] = Field(default_factory=list)


class NewFact(BaseModel):
    """A fact that a person states."""

    content: str
    category: str = DEFAULT_CATEGORY
    confidence: float = DEFAULT_CONFIDENCE


class FactChanges(BaseModel):
    """What to change in a fact; what is left out, or null, stays."""

    content: str | None = None
    category: str | None = None
    confidence: float | None = None


class MemorySettings(BaseModel):
    """The configuration that holds now."""

    model_config = ConfigDict(from_attributes=True)

    enabled: bool
    storage_path: str
    debounce_seconds: int
    max_facts: int
    fact_confidence_threshold: float
    injection_enabled: bool
    max_injection_tokens: int


class MemoryStatus(BaseModel):
    """The configuration and a document."""

    config: MemorySettings
    data: MemoryDocumentView


class MemoryScopeView(BaseModel):
    """A scope that has something. `facts` and `last_updated` are those of its own document."""

    scope: str
    agents: list[str]
    facts: int
    last_updated: str


class MemoryScopes(BaseModel):
    """All of them, by name."""

    scopes: list[MemoryScopeView]


def _memory(parts: Parts) -> MemoryService:
    return parts.systems.memory


def _where(
    scope: Annotated[str, Query(description="whose memory")] = DEFAULT,
    agent: Annotated[str, Query(description="a custom agent's; empty = the lead agent's")] = "",
) -> MemoryScope:
    return memory_scope(scope, agent)


Memory = Annotated[MemoryService, Depends(_memory)]
Where = Annotated[MemoryScope, Depends(_where)]

REFUSED: dict[int | str, dict[str, Any]] = {
    400: {"description": "What was given breaks a rule; `detail` says which."}
}
UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"description": "There is no such fact."}}


def _shown(document: MemoryDocument) -> MemoryDocumentView:
    return MemoryDocumentView.model_validate(document_to_json(document))


def _settings(config: MemoryConfig) -> MemorySettings:
    return MemorySettings.model_validate(config)


@router.get("/memory", responses=REFUSED, response_model_exclude_none=True)
async def memory(memory: Memory, where: Where) -> MemoryDocumentView:
    """Return a document; an empty one when nothing is remembered."""
    return _shown(await memory.get(where))


@router.delete("/memory", responses=REFUSED, response_model_exclude_none=True)
async def clear(memory: Memory, where: Where) -> MemoryDocumentView:
    """Forget a document; without `agent` everything in the scope. Return what is left: nothing."""
    return _shown(await memory.clear(where))


@router.post("/memory/reload", responses=REFUSED, response_model_exclude_none=True)
async def reload(memory: Memory, where: Where) -> MemoryDocumentView:
    """Read the documents from disk again; return one."""
    return _shown(await memory.reload(where))


@router.get("/memory/export", responses=REFUSED, response_model_exclude_none=True)
async def export(memory: Memory, where: Where) -> MemoryDocumentView:
    """Return a document, to be imported elsewhere."""
    return _shown(await memory.get(where))


@router.post("/memory/import", responses=REFUSED, response_model_exclude_none=True)
async def import_(document: MemoryDocumentView, memory: Memory, where: Where) -> MemoryDocumentView:
    """Put a document in the place of the present one."""
    return _shown(await memory.replace(where, document.model_dump(exclude_unset=True)))


@router.post("/memory/facts", responses=REFUSED, response_model_exclude_none=True)
async def create_fact(fact: NewFact, memory: Memory, where: Where) -> MemoryDocumentView:
    """Add a fact; return the whole document."""
    made = await memory.create_fact(where, fact.content, fact.category, fact.confidence)
    return _shown(made)


@router.patch(
    "/memory/facts/{fact_id}", responses=REFUSED | UNKNOWN, response_model_exclude_none=True
)
async def update_fact(
    fact_id: str, changes: FactChanges, memory: Memory, where: Where
) -> MemoryDocumentView:
    """Change a fact; return the whole document."""
    given = changes.model_dump(exclude_none=True)
    return _shown(await memory.update_fact(where, fact_id, given))


@router.delete(
    "/memory/facts/{fact_id}", responses=REFUSED | UNKNOWN, response_model_exclude_none=True
)
async def delete_fact(fact_id: str, memory: Memory, where: Where) -> MemoryDocumentView:
    """Remove a fact; return the whole document."""
    return _shown(await memory.delete_fact(where, fact_id))


@router.get("/memory/config")
async def config(memory: Memory) -> MemorySettings:
    """Return the configuration that holds now."""
    return _settings(memory.config)


@router.get("/memory/status", responses=REFUSED, response_model_exclude_none=True)
async def status(memory: Memory, where: Where) -> MemoryStatus:
    """Return the configuration and a document."""
    return MemoryStatus(config=_settings(memory.config), data=_shown(await memory.get(where)))


@router.get("/memory/scopes")
async def scopes(memory: Memory) -> MemoryScopes:
    """List whose memory there is."""
    found = [
        MemoryScopeView(
            scope=info.scope,
            agents=list(info.agents),
            facts=info.facts,
            last_updated=info.last_updated,
        )
        for info in await memory.list_scopes()
    ]
    return MemoryScopes(scopes=found)
