"""Request bodies of the LangGraph API. Unknown fields are ignored."""

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from store.threads import ThreadOrder, ThreadStatus, TtlStrategy

Json = dict[str, Any]
Selected = Annotated[list[str], Field(max_length=100)]
"""Names of fields to return, at most a few dozen."""

Names = Literal["*"] | list[str]
MAX_EXTRACTS = 10
MAX_OFFSET = 1_000_000_000
MAX_NAME_CHARS = 1000
MAX_DESCRIPTION_CHARS = 10_000
MAX_TTL_MINUTES = 10 * 366 * 24 * 60


class WireModel(BaseModel):
    """A request body."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class RunCommand(WireModel):
    """`command`: resumes after an interrupt, updates the state, or goes to nodes."""

    resume: Any = None
    update: Any = None
    goto: str | Json | list[str | Json] | None = None


class RunCreate(WireModel):
    """POST .../runs, .../runs/stream, .../runs/wait."""

    assistant_id: str
    input: Any = None
    command: RunCommand | None = None
    metadata: Json | None = None
    config: Json | None = None
    context: Json | None = None
    checkpoint: Json | None = None
    checkpoint_id: str | None = None
    webhook: str | None = None
    feedback_keys: list[str] | None = None
    interrupt_before: Names | None = None
    interrupt_after: Names | None = None
    stream_mode: str | list[str] | None = None
    stream_subgraphs: bool | None = False
    stream_resumable: bool | None = False
    multitask_strategy: Literal["reject", "rollback", "interrupt", "enqueue"] | None = None
    if_not_exists: Literal["create", "reject"] | None = None
    on_disconnect: Literal["cancel", "continue"] | None = None
    on_completion: Literal["delete", "keep"] | None = None
    after_seconds: Annotated[float, Field(allow_inf_nan=False)] | None = None
    durability: Literal["sync", "async", "exit"] | None = None
    checkpoint_during: bool | None = None


class CronCreate(RunCreate):
    """POST /runs/crons, /threads/{id}/runs/crons: the run, and when it starts."""

    schedule: Annotated[str, Field(min_length=1, max_length=200)]
    timezone: Annotated[str, Field(max_length=64)] | None = None
    end_time: AwareDatetime | None = None
    enabled: bool | None = None
    on_run_completed: Literal["delete", "keep"] | None = None


class CronPatch(WireModel):
    """PATCH /runs/crons/{id}."""

    schedule: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    timezone: Annotated[str, Field(max_length=64)] | None = None
    end_time: AwareDatetime | None = None
    enabled: bool | None = None
    on_run_completed: Literal["delete", "keep"] | None = None
    input: Any = None
    metadata: Json | None = None
    config: Json | None = None
    context: Json | None = None
    webhook: str | None = None
    interrupt_before: Names | None = None
    interrupt_after: Names | None = None
    stream_mode: str | list[str] | None = None
    stream_subgraphs: bool | None = None
    stream_resumable: bool | None = None
    multitask_strategy: Literal["reject", "rollback", "interrupt", "enqueue"] | None = None
    durability: Literal["sync", "async", "exit"] | None = None


class CronQuery(WireModel):
    """POST /runs/crons/count."""

    assistant_id: str | None = None
    thread_id: str | None = None
    enabled: bool | None = None
    metadata: Json | None = None


class CronSearch(CronQuery):
    """POST /runs/crons/search."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 10
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0
    sort_by: (
        Literal[
            "cron_id",
            "assistant_id",
            "thread_id",
            "created_at",
            "updated_at",
            "next_run_date",
            "end_time",
        ]
        | None
    ) = None
    sort_order: Literal["asc", "desc"] | None = None
    select: Selected | None = None


class ThreadTtl(WireModel):
    """`ttl` of a thread: its minutes, and what to delete after them."""

    ttl: Annotated[float, Field(gt=0, le=MAX_TTL_MINUTES)]
    strategy: TtlStrategy = "delete"


class StepUpdate(WireModel):
    """One update of a superstep."""

    values: Any = None
    command: RunCommand | None = None
    as_node: str


class Superstep(WireModel):
    """Updates that form one checkpoint."""

    updates: Annotated[list[StepUpdate], Field(min_length=1)]


class ThreadCreate(WireModel):
    """POST /threads."""

    thread_id: str | None = None
    metadata: Json | None = None
    if_exists: Literal["raise", "do_nothing"] | None = None
    ttl: ThreadTtl | float | None = None
    supersteps: list[Superstep] | None = None


class ThreadPatch(WireModel):
    """PATCH /threads/{id}."""

    metadata: Json | None = None
    ttl: ThreadTtl | float | None = None


class ThreadSearch(WireModel):
    """POST /threads/search and /threads/count."""

    metadata: Json | None = None
    values: Json | None = None
    status: ThreadStatus | None = None
    ids: list[str] | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 10
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0
    sort_by: ThreadOrder | None = None
    sort_order: Literal["asc", "desc"] | None = None
    select: Selected | None = None
    extract: Annotated[dict[str, str], Field(max_length=MAX_EXTRACTS)] | None = None


class ThreadPrune(WireModel):
    """POST /threads/prune."""

    thread_ids: list[str]
    strategy: TtlStrategy = "delete"


class StateUpdate(WireModel):
    """POST /threads/{id}/state."""

    values: Any = None
    as_node: str | None = None
    checkpoint: Json | None = None
    checkpoint_id: str | None = None


class StateAt(WireModel):
    """POST /threads/{id}/state/checkpoint."""

    checkpoint: Json
    subgraphs: bool | None = False
    select: Selected | None = None


class HistoryRequest(WireModel):
    """POST /threads/{id}/history."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 10
    before: str | Json | None = None
    metadata: Json | None = None
    checkpoint: Json | None = None
    select: Selected | None = None


class AssistantSearch(WireModel):
    """POST /assistants/search and /assistants/count."""

    metadata: Json | None = None
    graph_id: str | None = None
    name: str | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 10
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0
    select: Selected | None = None
    sort_by: Literal["assistant_id", "graph_id", "name", "created_at", "updated_at"] | None = None
    sort_order: Literal["asc", "desc"] | None = None


class AssistantCreate(WireModel):
    """POST /assistants."""

    graph_id: Annotated[str, Field(min_length=1, max_length=200)]
    assistant_id: str | None = None
    config: Json | None = None
    context: Json | None = None
    metadata: Json | None = None
    if_exists: Literal["raise", "do_nothing"] | None = None
    name: Annotated[str, Field(max_length=MAX_NAME_CHARS)] | None = None
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS)] | None = None


class AssistantPatch(WireModel):
    """PATCH /assistants/{id}."""

    graph_id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    config: Json | None = None
    context: Json | None = None
    metadata: Json | None = None
    name: Annotated[str, Field(max_length=MAX_NAME_CHARS)] | None = None
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS)] | None = None


class AssistantVersions(WireModel):
    """POST /assistants/{id}/versions."""

    metadata: Json | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 10
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0


class AssistantVersion(WireModel):
    """POST /assistants/{id}/latest."""

    version: Annotated[int, Field(ge=1, le=MAX_OFFSET)]


class CancelMany(WireModel):
    """POST /runs/cancel: runs of one thread, or all runs with a status."""

    thread_id: str | None = None
    run_ids: list[str] | None = None
    status: Literal["pending", "running", "all"] | None = None


class ProtocolCommand(WireModel):
    """POST /threads/{id}/commands; also a frame of a WebSocket."""

    id: int
    method: str
    params: Json | None = None


class ProtocolEvents(WireModel):
    """POST /threads/{id}/stream/events."""

    channels: Annotated[list[str], Field(min_length=1)]
    namespaces: list[list[str]] | None = None
    depth: Annotated[int, Field(ge=0)] | None = None
    since: Annotated[int, Field(ge=0)] | None = None


class ItemPut(WireModel):
    """PUT /store/items."""

    namespace: list[str]
    key: Annotated[str, Field(min_length=1)]
    value: Json
    ttl: Annotated[float, Field(gt=0, le=MAX_TTL_MINUTES)] | None = None


class ItemKey(WireModel):
    """DELETE /store/items."""

    namespace: list[str]
    key: str


class ItemSearch(WireModel):
    """POST /store/items/search."""

    namespace_prefix: list[str] = Field(default_factory=list)
    filter: Json | None = None
    query: str | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 10
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0
    refresh_ttl: bool | None = None


class NamespaceSearch(WireModel):
    """POST /store/namespaces."""

    prefix: list[str] | None = None
    suffix: list[str] | None = None
    max_depth: Annotated[int, Field(ge=1)] | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0
