"""What the OpenAPI document says of the LangGraph-compatible API: its handlers read and write bodies by themselves."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from gateway.langgraph import wire
from gateway.langgraph.parameters import PARAMETERS, headers_of
from gateway.langgraph.wire import Json
from store.runs import RunStatus
from store.threads import ThreadStatus

REF = "#/components/schemas/{model}"

Shape = type[BaseModel] | Mapping[str, Any]


class Shown(BaseModel):
    """Something that is shown; nothing is built of it before somebody asks for the document."""

    model_config = ConfigDict(defer_build=True)


class AssistantView(Shown):
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


class ThreadView(Shown):
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


class RunView(Shown):
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


class StateView(Shown):
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


class ItemView(Shown):
    """An item of the key-value store."""

    namespace: list[str]
    key: str
    value: Json
    created_at: str
    updated_at: str


class ItemsView(Shown):
    """Items that were found."""

    items: list[ItemView]


class NamespacesView(Shown):
    """Namespaces that were found."""

    namespaces: list[list[str]]


class CommandView(Shown):
    """What became of a command of the newer streaming protocol: a result, or an error's code and text."""

    type: Literal["success", "error"]
    id: int | None
    result: Json | None = None
    meta: Json | None = None
    error: str | None = None
    message: str | None = None


class PrunedView(Shown):
    """How many threads were pruned."""

    pruned_count: int


ANYTHING: Shape = {}
NUMBER: Shape = {"type": "integer"}
OBJECT: Shape = {"type": "object"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
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

    takes: Shape | None = None
    gives: Shape | None = None
    many: Literal["", "takes", "gives", "both"] = ""
    status: int = 200
    also: int | None = None
    stream: bool = False
    needs: bool = False


def _runs() -> Iterator[tuple[str, Told]]:
    for start in ("/threads/{thread_id}/runs", "/runs"):
        yield f"POST {start}", Told(takes=wire.RunCreate, gives=RunView)
        yield f"POST {start}/wait", Told(takes=wire.RunCreate, gives=ANYTHING)
        yield f"POST {start}/stream", Told(takes=wire.RunCreate, gives=ANYTHING, stream=True)
        yield f"GET {start}/{{run_id}}/join", Told(gives=ANYTHING)
        yield f"GET {start}/{{run_id}}/stream", Told(gives=ANYTHING, stream=True)
    one = "/threads/{thread_id}/runs"
    yield f"GET {one}", Told(gives=RunView, many="gives")
    yield f"GET {one}/{{run_id}}", Told(gives=RunView)
    yield f"DELETE {one}/{{run_id}}", Told(status=204)
    yield f"POST {one}/{{run_id}}/cancel", Told(gives=ANYTHING, also=202)
    yield "POST /runs/batch", Told(takes=wire.RunCreate, gives=RunView, many="both")
    yield "POST /runs/cancel", Told(takes=wire.CancelMany, status=204)


def _threads() -> Iterator[tuple[str, Told]]:
    one = "/threads/{thread_id}"
    yield "POST /threads", Told(takes=wire.ThreadCreate, gives=ThreadView)
    yield "POST /threads/search", Told(takes=wire.ThreadSearch, gives=ThreadView, many="gives")
    yield "POST /threads/count", Told(takes=wire.ThreadSearch, gives=NUMBER)
    yield "POST /threads/prune", Told(takes=wire.ThreadPrune, gives=PrunedView)
    yield f"POST {one}/copy", Told(gives=ThreadView)
    yield f"GET {one}", Told(gives=ThreadView)
    yield f"PATCH {one}", Told(takes=wire.ThreadPatch, gives=ThreadView, also=204)
    yield f"DELETE {one}", Told(status=204)
    yield f"GET {one}/stream", Told(gives=ANYTHING, stream=True)
    yield f"POST {one}/commands", Told(takes=wire.ProtocolCommand, gives=CommandView, needs=True)
    events = Told(takes=wire.ProtocolEvents, gives=ANYTHING, stream=True, needs=True)
    yield f"POST {one}/stream/events", events
    yield f"GET {one}/state", Told(gives=StateView)
    yield f"GET {one}/state/{{checkpoint_id}}", Told(gives=StateView)
    yield f"POST {one}/state", Told(takes=wire.StateUpdate, gives=OBJECT)
    yield f"POST {one}/state/checkpoint", Told(takes=wire.StateAt, gives=StateView)
    yield f"POST {one}/history", Told(takes=wire.HistoryRequest, gives=StateView, many="gives")
    yield f"GET {one}/history", Told(gives=StateView, many="gives")


def _assistants() -> Iterator[tuple[str, Told]]:
    one, search = "/assistants/{assistant_id}", wire.AssistantSearch
    yield "POST /assistants", Told(takes=wire.AssistantCreate, gives=AssistantView)
    yield f"PATCH {one}", Told(takes=wire.AssistantPatch, gives=AssistantView)
    yield f"DELETE {one}", Told(status=204)
    yield "POST /assistants/search", Told(takes=search, gives=AssistantView, many="gives")
    yield "POST /assistants/count", Told(takes=search, gives=NUMBER)
    yield f"GET {one}", Told(gives=AssistantView)
    yield (
        f"POST {one}/versions",
        Told(takes=wire.AssistantVersions, gives=AssistantView, many="gives"),
    )
    yield f"POST {one}/latest", Told(takes=wire.AssistantVersion, gives=AssistantView)
    for drawn in ("graph", "schemas", "subgraphs", "subgraphs/{namespace}"):
        yield f"GET {one}/{drawn}", Told(gives=OBJECT)


def _others() -> Iterator[tuple[str, Told]]:
    yield "GET /ok", Told(gives=OBJECT)
    yield "GET /info", Told(gives=OBJECT)
    yield "PUT /store/items", Told(takes=wire.ItemPut, status=204)
    yield "GET /store/items", Told(gives=ANYTHING)
    yield "DELETE /store/items", Told(takes=wire.ItemKey, status=204)
    yield "POST /store/items/search", Told(takes=wire.ItemSearch, gives=ItemsView)
    yield "POST /store/namespaces", Told(takes=wire.NamespaceSearch, gives=NamespacesView)


OPERATIONS: Mapping[str, Told] = dict([*_runs(), *_threads(), *_assistants(), *_others()])
"""Method and path below /api. What is not here answers 501, or describes itself."""

ABSENT = 501


def complete(document: dict[str, Any], prefix: str = "/api") -> None:
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
                _tell(operation, told)
                _tell_more(operation, name, str(told.status))
            elif path.removeprefix(prefix).startswith("/runs/crons"):
                operation["responses"].pop("200", None)


def _tell(operation: dict[str, Any], told: Told) -> None:
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


def _tell_more(operation: dict[str, Any], name: str, status: str) -> None:
    """Describe what is no body: parameters that the handlers read by themselves, and headers of the answer."""
    if name in PARAMETERS:
        known = {one["name"] for one in operation.get("parameters", ())}
        further = [one for one in PARAMETERS[name] if one["name"] not in known]
        operation["parameters"] = [*operation.get("parameters", ()), *further]
    if headers := headers_of(name):
        text = {"schema": {"type": "string"}}
        operation["responses"][status]["headers"] = dict.fromkeys(headers, text)


def _schema(shape: Shape, many: str, side: str) -> dict[str, Any]:
    one = {"$ref": REF.format(model=shape.__name__)} if isinstance(shape, type) else dict(shape)
    return {"type": "array", "items": one} if many in (side, "both") else one
