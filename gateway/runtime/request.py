"""GraphRunRequest: a request for a run, and the graph's input and config made from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID, uuid4

from langchain_core.messages import AnyMessage
from langchain_core.messages.utils import convert_to_messages
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Send

from agent.content_blocks import standard_message
from gateway.runtime.errors import InvalidRequest
from gateway.runtime.stream_modes import StreamModes
from store.runs import MultitaskStrategy

Durability = Literal["sync", "async", "exit"]
Nodes = Literal["*"] | Sequence[str]

MAX_DELAY_S = 7 * 86_400.0
"""Largest `after_seconds`. A delayed run waits in memory, and after a restart for the rest of the time."""

MAX_RECURSION = 1000
"""Largest recursion limit that a client can request."""

DEFAULT_RECURSION = 100

MAX_MESSAGES = 10_000
"""Maximum number of messages in a request.

Millions of empty messages fit into a body, and each takes 10 µs and a kilobyte.
"""

CHECKPOINT_KEYS = frozenset({"checkpoint_id", "checkpoint_ns", "checkpoint_map"})
"""Options that name the checkpoint at which a graph continues."""

_RESERVED_KEYS = CHECKPOINT_KEYS | {"thread_id", "run_id"}
"""Options that clients cannot set, because the runtime decides the IDs and the checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRunRequest:
    """A request for a run.

    Attributes:
        thread_id: None = the run gets a thread that is deleted afterwards.
        assistant_id: A graph's name, or the assistant ID derived from it.
        input: The graph's input. None continues from the last checkpoint.
        command: `resume`, `update`, `goto` of LangGraph's Command, in place of an input.
        context: The graph's `runtime.context` (also in `config.configurable`).
        durability: When checkpoints are written. `sync` = before the next step starts, so that a killed process loses
            no finished step.
        create_thread: Create the thread if it does not exist.
        keep_thread: Keep the thread of a run that was requested without one.
        after_seconds: Delay before the start.
        webhook: The URL to post the result to.
        shown_assistant_id: The requested assistant's ID, if it is not the graph's default assistant.
        kwargs: The request, as shown with the run.
        start_key: Repeated requests with this key, on the same thread, start one run (`RunManager.start`); None = each
            starts one.
        restartable: The run continues at another node, or after a restart, when its process ends; else it is
            `interrupted`, because its client starts it again.
    """

    thread_id: str | None
    assistant_id: str
    modes: StreamModes
    input: Any = None
    command: Mapping[str, Any] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: Mapping[str, Any] = field(default_factory=dict)
    interrupt_before: Nodes | None = None
    interrupt_after: Nodes | None = None
    multitask: MultitaskStrategy = "enqueue"
    durability: Durability | None = None
    create_thread: bool = False
    keep_thread: bool = False
    after_seconds: float = 0.0
    webhook: str | None = None
    shown_assistant_id: str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    start_key: str | None = None
    restartable: bool = True


def request_options(request: GraphRunRequest) -> dict[str, Any]:
    """Return the options of a run. Raises InvalidRequest."""
    return merge_options(request.config, request.context)


def merge_options(config: Mapping[str, Any], context: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the options in `config.configurable` and `context`. Clients use either.

    Raises:
        InvalidRequest: They contradict each other, or `config` is malformed.
    """
    _check_types(config)
    configurable = _without_reserved(config.get("configurable") or {})
    context = _without_reserved(context)
    for key in configurable.keys() & context.keys():
        if configurable[key] != context[key]:
            raise InvalidRequest(
                f"config.configurable and context contradict each other about {key!r}. Set it in context alone."
            )
    return configurable | context


def runnable_config(
    request: GraphRunRequest,
    options: Mapping[str, Any],
    *,
    run_id: str,
    thread_id: str,
    graph_id: str,
) -> RunnableConfig:
    """Return the graph's config. Clients cannot choose its thread and run IDs. `options`: as in `request_options`."""
    ids = {"thread_id": thread_id, "run_id": run_id}
    asked = request.config.get("recursion_limit")
    limit = asked if isinstance(asked, int) else DEFAULT_RECURSION
    return {
        "configurable": {**options, **requested_checkpoint(request), **ids},
        "metadata": {
            **(request.config.get("metadata") or {}),
            **request.metadata,
            "graph_id": graph_id,
            **ids,
        },
        "tags": list(request.config.get("tags") or ()),
        "recursion_limit": max(1, min(limit, MAX_RECURSION)),
        "run_id": UUID(run_id),
        "run_name": graph_id,
    }


def requested_checkpoint(request: GraphRunRequest) -> dict[str, Any]:
    """Return the checkpoint to continue from. Clients send it in `checkpoint` or among the options."""
    among = request.config.get("configurable") or {}
    named = {"checkpoint_id": among.get("checkpoint_id")} | dict(request.checkpoint)
    return {key: value for key, value in named.items() if key in CHECKPOINT_KEYS and value}


def graph_input(request: GraphRunRequest, *, has_messages: bool = True) -> object:
    """Return the graph's input.

    Args:
        request: The request.
        has_messages: Whether the graph's schema declares `messages` as LangChain's messages. If not, they stay as the
            client sent them.

    Raises:
        InvalidRequest: It is malformed.
    """
    if request.command is not None:
        given = request.command
        if given.get("resume") is None and not given.get("update") and not given.get("goto"):
            raise InvalidRequest("command is empty: give resume, update or goto.", malformed=True)
        return parse_command(given, has_messages=has_messages)
    return parse_state_values(request.input, has_messages=has_messages)


def parse_state_values(given: object, *, has_messages: bool = True) -> object:
    """Return state values. `messages` are converted if the graph's schema says so. Raises InvalidRequest."""
    if not isinstance(given, Mapping) or "messages" not in given:
        return given
    if has_messages:
        return {**given, "messages": _parse_message_list(given["messages"])}
    _check_message_count(given["messages"])
    return given


def parse_messages(given: object) -> list[AnyMessage]:
    """Convert messages from any accepted form. Each gets an ID. Raises InvalidRequest."""
    messages = _parse_message_list(given)
    for message in messages:
        message.id = message.id or str(uuid4())
    return messages


def _check_types(config: Mapping[str, Any]) -> None:
    for key, kind, form in (
        ("configurable", Mapping, "an object"),
        ("metadata", Mapping, "an object"),
        ("tags", list, "a list"),
    ):
        if config.get(key) and not isinstance(config[key], kind):
            raise InvalidRequest(f"config.{key} must be {form}.", malformed=True)
    if not all(isinstance(tag, str) for tag in config.get("tags") or ()):
        raise InvalidRequest("config.tags must be texts.", malformed=True)
    limit = config.get("recursion_limit")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
        raise InvalidRequest("config.recursion_limit must be a whole number.", malformed=True)


def _without_reserved(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in given.items()
        if key not in _RESERVED_KEYS and not key.startswith(("__", "langgraph_auth_"))
    }


def _parse_message_list(given: object) -> list[AnyMessage]:
    _check_message_count(given)
    listed = given if isinstance(given, list) else [given]
    return [_parse_message(index, message) for index, message in enumerate(listed)]


def _check_message_count(given: object) -> None:
    """Refuse input whose conversion would take minutes. Raises InvalidRequest."""
    if isinstance(given, list) and len(given) > MAX_MESSAGES:
        raise InvalidRequest(
            f"A request can have at most {MAX_MESSAGES:,} messages.", malformed=True
        )


def _parse_message(index: int, given: object) -> AnyMessage:
    """Convert one message. Keeps IDs, names and additional_kwargs. Accepts `type` and `role`."""
    fields = dict(given) if isinstance(given, Mapping) else given
    if isinstance(fields, dict):
        if "role" in fields and "type" in fields:
            del fields["type"]
        # Fields of Parley's responses that are not constructor arguments. Clients send them back.
        for echoed in ("example", "invalid_tool_calls", "usage_metadata"):
            if not fields.get(echoed, True):
                del fields[echoed]
    try:
        converted = convert_to_messages([fields])  # type: ignore[list-item]  # from a client, validated here
    except (ValueError, TypeError, KeyError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise InvalidRequest(f"Invalid message at input.messages[{index}]: {reason}") from error
    return standard_message(converted[0])  # type: ignore[return-value]  # one in, one out


def parse_command(given: Mapping[str, Any], *, has_messages: bool = True) -> Command[Any]:
    """Return LangGraph's command from its wire form. `has_messages`: as in `graph_input`. Raises InvalidRequest."""
    goto = given.get("goto") or ()
    targets = [goto] if isinstance(goto, str | Mapping) else list(goto)
    return Command(
        resume=given.get("resume"),
        update=_parse_update(given.get("update"), has_messages=has_messages),
        goto=[_parse_goto(target) for target in targets],
    )


def _parse_update(given: object, *, has_messages: bool) -> object:
    """Return the update of a command.

    JSON has no tuples, so pairs of a key and its value arrive as lists. LangGraph saves the update before it applies
    it, so malformed messages would make the thread unreadable.
    """
    if given is None or isinstance(given, Mapping):
        return parse_state_values(given, has_messages=has_messages)
    pairs: list[Any] = given if isinstance(given, list) else [given]
    if not all(map(_is_pair, pairs)):
        raise InvalidRequest(
            "command.update must be an object, or a list of [key, value] pairs.", malformed=True
        )
    parsed = (parse_state_values({key: value}, has_messages=has_messages) for key, value in pairs)
    return [pair for one in parsed for pair in one.items()]  # type: ignore[attr-defined]  # a mapping


def _is_pair(given: object) -> bool:
    match given:
        case [str(), _]:
            return True
        case _:
            return False


def _parse_goto(target: object) -> str | Send:
    if isinstance(target, str):
        return target
    if isinstance(target, Mapping) and isinstance(target.get("node"), str):
        state = target.get("input")
        _check_message_count(state.get("messages") if isinstance(state, Mapping) else state)
        return Send(target["node"], target.get("input"))
    raise InvalidRequest("command.goto takes node names or {node, input}.", malformed=True)
