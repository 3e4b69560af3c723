"""Response models of the LangGraph API, only for the OpenAPI document. Handlers return ready JSON.

With `select`, a response contains only the selected fields, so every field has a default.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from gateway.langgraph.request_models import Json
from store.runs import RunStatus
from store.threads import ThreadStatus


class WireResponse(BaseModel):
    """A response. Its schema is built only when the OpenAPI document is requested."""

    model_config = ConfigDict(defer_build=True)


class AssistantResponse(WireResponse):
    """A graph, or a custom agent."""

    assistant_id: str = ""
    graph_id: str = ""
    config: Json = {}
    context: Json = {}
    metadata: Json = {}
    name: str = ""
    created_at: str = ""
    updated_at: str = ""
    version: int = 1
    description: str | None = None


class ThreadResponse(WireResponse):
    """A thread."""

    thread_id: str = ""
    created_at: str = ""
    updated_at: str = ""
    state_updated_at: str = ""
    metadata: Json = {}
    status: ThreadStatus = "idle"
    config: Json = {}
    values: Any = None
    error: Json | None = None
    interrupts: Json = {}


class RunResponse(WireResponse):
    """A run."""

    run_id: str = ""
    thread_id: str = ""
    assistant_id: str = ""
    metadata: Json = {}
    status: RunStatus = "pending"
    kwargs: Json = {}
    multitask_strategy: str = "enqueue"
    created_at: str = ""
    updated_at: str = ""


class CronResponse(WireResponse):
    """A cron."""

    cron_id: str = ""
    assistant_id: str = ""
    thread_id: str | None = None
    user_id: str | None = None
    end_time: str | None = None
    schedule: str = ""
    timezone: str | None = None
    payload: Json = {}
    next_run_date: str | None = None
    metadata: Json = {}
    on_run_completed: Literal["delete", "keep"] | None = None
    enabled: bool = True
    created_at: str = ""
    updated_at: str = ""


class ThreadStateResponse(WireResponse):
    """A state of a thread."""

    values: Any = None
    next: list[str] = []
    tasks: list[Json] = []
    metadata: Json | None = None
    created_at: str | None = None
    checkpoint: Json | None = None
    parent_checkpoint: Json | None = None
    interrupts: list[Json] = []
    checkpoint_id: str | None = None
    parent_checkpoint_id: str | None = None


class StoreItemResponse(WireResponse):
    """An item of the key-value store."""

    namespace: list[str]
    key: str
    value: Json
    created_at: str
    updated_at: str


class StoreItemList(WireResponse):
    """Items found by a search."""

    items: list[StoreItemResponse]


class NamespaceList(WireResponse):
    """Namespaces found by a search."""

    namespaces: list[list[str]]


class ProtocolReply(WireResponse):
    """The result of a protocol command, or its error code and message."""

    type: Literal["success", "error"]
    id: int | None
    result: Json | None = None
    meta: Json | None = None
    error: str | None = None
    message: str | None = None


class PruneResponse(WireResponse):
    """The number of pruned threads."""

    pruned_count: int
