"""The requests of the LangGraph wire format, as far as they are understood. Unknown fields are ignored."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from store.threads import ThreadOrder, ThreadStatus

Json = dict[str, Any]
Names = Literal["*"] | list[str]


class WireModel(BaseModel):
    """A request body."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class RunCommand(WireModel):
    """`command`: how to go on from an interrupt, or where to."""

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
    interrupt_before: Names | None = None
    interrupt_after: Names | None = None
    stream_mode: str | list[str] | None = None
    stream_subgraphs: bool | None = False
    stream_resumable: bool | None = False
    multitask_strategy: Literal["reject", "rollback", "interrupt", "enqueue"] | None = None
    if_not_exists: Literal["create", "reject"] | None = None
    on_disconnect: Literal["cancel", "continue"] | None = None
    on_completion: Literal["delete", "keep"] | None = None
    after_seconds: float | None = None
    durability: Literal["sync", "async", "exit"] | None = None
    checkpoint_during: bool | None = None


class ThreadCreate(WireModel):
    """POST /threads."""

    thread_id: str | None = None
    metadata: Json | None = None
    if_exists: Literal["raise", "do_nothing"] | None = None


class ThreadPatch(WireModel):
    """PATCH /threads/{id}."""

    metadata: Json | None = None


class ThreadSearch(WireModel):
    """POST /threads/search and /threads/count."""

    metadata: Json | None = None
    status: ThreadStatus | None = None
    ids: list[str] | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 10
    offset: Annotated[int, Field(ge=0)] = 0
    sort_by: ThreadOrder | None = None
    sort_order: Literal["asc", "desc"] | None = None
    select: list[str] | None = None


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


class HistoryRequest(WireModel):
    """POST /threads/{id}/history."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 10
    before: str | Json | None = None
    metadata: Json | None = None
    checkpoint: Json | None = None


class AssistantSearch(WireModel):
    """POST /assistants/search and /assistants/count."""

    metadata: Json | None = None
    graph_id: str | None = None
    name: str | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 10
    offset: Annotated[int, Field(ge=0)] = 0
