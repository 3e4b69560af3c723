"""What the OpenAPI document says of the LangGraph-compatible API: its handlers read and write bodies by themselves."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from gateway.langgraph import request_models
from gateway.langgraph.parameters import PARAMETERS, response_headers
from gateway.langgraph.request_models import Json
from store.runs import RunStatus
from store.threads import ThreadStatus

REF = "#/components/schemas/{model}"

SchemaSource = type[BaseModel] | Mapping[str, Any]


class _ResponseModel(BaseModel):
    """Something that is shown; nothing is built of it before somebody asks for the document."""

    model_config = ConfigDict(defer_build=True)


class AssistantView(_ResponseModel):
    """A graph, or a custom agent. `select` leaves the fields that it names."""

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


class ThreadView(_ResponseModel):
    """A thread. `select` leaves the fields that it names."""

    thread_id: str = ""
    created_at: str = ""
    updated_at: str = ""
    state_updated_at: str = ""
    metadata: Json = {}
    status: ThreadStatus = "idle"
    config: Json = {}
    values: Json | None = None
    error: Json | None = None
    interrupts: Json = {}


class RunView(_ResponseModel):
    """A run. `select` leaves the fields that it names."""

    run_id: str = ""
    thread_id: str = ""
    assistant_id: str = ""
    metadata: Json = {}
    status: RunStatus = "pending"
    kwargs: Json = {}
    multitask_strategy: str = "enqueue"
    created_at: str = ""
    updated_at: str = ""


class StateView(_ResponseModel):
    """A state of a thread. `select` leaves the fields that it names."""

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


class ItemView(_ResponseModel):
    """An item of the key-value store."""

    namespace: list[str]
    key: str
    value: Json
    created_at: str
    updated_at: str


class ItemsView(_ResponseModel):
    """Items that were found."""

    items: list[ItemView]


class NamespacesView(_ResponseModel):
    """Namespaces that were found."""

    namespaces: list[list[str]]


class CommandView(_ResponseModel):
    """What became of a command of the newer streaming protocol: a result, or an error's code and text."""

    type: Literal["success", "error"]
    id: int | None
    result: Json | None = None
    meta: Json | None = None
    error: str | None = None
    message: str | None = None


class PrunedView(_ResponseModel):
    """How many threads were pruned."""

    pruned_count: int


ANYTHING: SchemaSource = {}
NUMBER: SchemaSource = {"type": "integer"}
OBJECT: SchemaSource = {"type": "object"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSpec:
    """One operation.

    Attributes:
        takes: Its body.
        gives: What it answers with; None = it has only problems to tell.
        many: Whether body or answer are lists of these.
        status: Of the answer; an answer without body where it is 202 or 204.
        also: Another status without a body.
        stream: Whether the answer is a stream of events.
        needs: Whether it takes nothing but a body.
    """

    takes: SchemaSource | None = None
    gives: SchemaSource | None = None
    many: Literal["", "takes", "gives", "both"] = ""
    status: int = 200
    also: int | None = None
    stream: bool = False
    needs: bool = False


def _run_operations() -> Iterator[tuple[str, OperationSpec]]:
    for start in ("/threads/{thread_id}/runs", "/runs"):
        yield f"POST {start}", OperationSpec(takes=request_models.RunCreate, gives=RunView)
        yield f"POST {start}/wait", OperationSpec(takes=request_models.RunCreate, gives=ANYTHING)
        yield (
            f"POST {start}/stream",
            OperationSpec(takes=request_models.RunCreate, gives=ANYTHING, stream=True),
        )
        yield f"GET {start}/{{run_id}}/join", OperationSpec(gives=ANYTHING)
        yield f"GET {start}/{{run_id}}/stream", OperationSpec(gives=ANYTHING, stream=True)
    one = "/threads/{thread_id}/runs"
    yield f"GET {one}", OperationSpec(gives=RunView, many="gives")
    yield f"GET {one}/{{run_id}}", OperationSpec(gives=RunView)
    yield f"DELETE {one}/{{run_id}}", OperationSpec(status=204)
    yield f"POST {one}/{{run_id}}/cancel", OperationSpec(gives=ANYTHING, also=202)
    yield (
        "POST /runs/batch",
        OperationSpec(takes=request_models.RunCreate, gives=RunView, many="both"),
    )
    yield "POST /runs/cancel", OperationSpec(takes=request_models.CancelMany, status=204)


def _thread_operations() -> Iterator[tuple[str, OperationSpec]]:
    one = "/threads/{thread_id}"
    yield "POST /threads", OperationSpec(takes=request_models.ThreadCreate, gives=ThreadView)
    yield (
        "POST /threads/search",
        OperationSpec(takes=request_models.ThreadSearch, gives=ThreadView, many="gives"),
    )
    yield "POST /threads/count", OperationSpec(takes=request_models.ThreadSearch, gives=NUMBER)
    yield "POST /threads/prune", OperationSpec(takes=request_models.ThreadPrune, gives=PrunedView)
    yield f"POST {one}/copy", OperationSpec(gives=ThreadView)
    yield f"GET {one}", OperationSpec(gives=ThreadView)
    yield (
        f"PATCH {one}",
        OperationSpec(takes=request_models.ThreadPatch, gives=ThreadView, also=204),
    )
    yield f"DELETE {one}", OperationSpec(status=204)
    yield f"GET {one}/stream", OperationSpec(gives=ANYTHING, stream=True)
    yield (
        f"POST {one}/commands",
        OperationSpec(takes=request_models.ProtocolCommand, gives=CommandView, needs=True),
    )
    events = OperationSpec(
        takes=request_models.ProtocolEvents, gives=ANYTHING, stream=True, needs=True
    )
    yield f"POST {one}/stream/events", events
    yield f"GET {one}/state", OperationSpec(gives=StateView)
    yield f"GET {one}/state/{{checkpoint_id}}", OperationSpec(gives=StateView)
    yield f"POST {one}/state", OperationSpec(takes=request_models.StateUpdate, gives=OBJECT)
    yield (
        f"POST {one}/state/checkpoint",
        OperationSpec(takes=request_models.StateAt, gives=StateView),
    )
    yield (
        f"POST {one}/history",
        OperationSpec(takes=request_models.HistoryRequest, gives=StateView, many="gives"),
    )
    yield f"GET {one}/history", OperationSpec(gives=StateView, many="gives")


def _assistant_operations() -> Iterator[tuple[str, OperationSpec]]:
    one, search = "/assistants/{assistant_id}", request_models.AssistantSearch
    yield (
        "POST /assistants",
        OperationSpec(takes=request_models.AssistantCreate, gives=AssistantView),
    )
    yield f"PATCH {one}", OperationSpec(takes=request_models.AssistantPatch, gives=AssistantView)
    yield f"DELETE {one}", OperationSpec(status=204)
    yield "POST /assistants/search", OperationSpec(takes=search, gives=AssistantView, many="gives")
    yield "POST /assistants/count", OperationSpec(takes=search, gives=NUMBER)
    yield f"GET {one}", OperationSpec(gives=AssistantView)
    yield (
        f"POST {one}/versions",
        OperationSpec(takes=request_models.AssistantVersions, gives=AssistantView, many="gives"),
    )
    yield (
        f"POST {one}/latest",
        OperationSpec(takes=request_models.AssistantVersion, gives=AssistantView),
    )
    for drawn in ("graph", "schemas", "subgraphs", "subgraphs/{namespace}"):
        yield f"GET {one}/{drawn}", OperationSpec(gives=OBJECT)


def _other_operations() -> Iterator[tuple[str, OperationSpec]]:
    yield "GET /ok", OperationSpec(gives=OBJECT)
    yield "GET /info", OperationSpec(gives=OBJECT)
    yield "PUT /store/items", OperationSpec(takes=request_models.ItemPut, status=204)
    yield "GET /store/items", OperationSpec(gives=ANYTHING)
    yield "DELETE /store/items", OperationSpec(takes=request_models.ItemKey, status=204)
    yield (
        "POST /store/items/search",
        OperationSpec(takes=request_models.ItemSearch, gives=ItemsView),
    )
    yield (
        "POST /store/namespaces",
        OperationSpec(takes=request_models.NamespaceSearch, gives=NamespacesView),
    )


OPERATIONS: Mapping[str, OperationSpec] = dict(
    [*_run_operations(), *_thread_operations(), *_assistant_operations(), *_other_operations()]
)
"""Method and path below /api. What is not here answers 501, or describes itself."""

ABSENT = 501


def add_langgraph_schemas(document: dict[str, Any], prefix: str = "/api") -> None:
    """Put the bodies and answers of these operations into an OpenAPI document."""
    shapes = [shape for told in OPERATIONS.values() for shape in (told.takes, told.gives)]
    models = [shape for shape in shapes if isinstance(shape, type)]
    wanted: list[tuple[type[BaseModel], JsonSchemaMode]] = [(one, "validation") for one in models]
    _, definitions = models_json_schema(wanted, ref_template=REF)
    document["components"].setdefault("schemas", {}).update(definitions["$defs"])
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            name = f"{method.upper()} {path.removeprefix(prefix)}"
            told = OPERATIONS.get(name)
            if told is not None:
                _add_body_and_response(operation, told)
                _add_parameters_and_headers(operation, name, str(told.status))
            elif path.removeprefix(prefix).startswith("/runs/crons"):
                operation["responses"].pop("200", None)


def _add_body_and_response(operation: dict[str, Any], told: OperationSpec) -> None:
    if told.takes is not None:
        content = {"application/json": {"schema": _schema(told.takes, told.many, "takes")}}
        operation["requestBody"] = {
            "content": content,
            "required": told.needs or told.many == "both",
        }
    answers = operation["responses"]
    answers.pop("200", None)
    answers.pop(str(ABSENT), None)
    described: dict[str, Any] = {"description": "Done"}
    if told.gives is not None:
        kind = "text/event-stream" if told.stream else "application/json"
        described["content"] = {kind: {"schema": _schema(told.gives, told.many, "gives")}}
    answers[str(told.status)] = described
    if told.also is not None:
        answers[str(told.also)] = {"description": "Done; without a body"}


def _add_parameters_and_headers(operation: dict[str, Any], name: str, status: str) -> None:
    """Describe what is no body: parameters that the handlers read by themselves, and headers of the answer."""
    if name in PARAMETERS:
        known = {one["name"] for one in operation.get("parameters", ())}
        further = [one for one in PARAMETERS[name] if one["name"] not in known]
        operation["parameters"] = [*operation.get("parameters", ()), *further]
    if headers := response_headers(name):
        text = {"schema": {"type": "string"}}
        operation["responses"][status]["headers"] = dict.fromkeys(headers, text)


def _schema(shape: SchemaSource, many: str, side: str) -> dict[str, Any]:
    one = {"$ref": REF.format(model=shape.__name__)} if isinstance(shape, type) else dict(shape)
    return {"type": "array", "items": one} if many in (side, "both") else one
