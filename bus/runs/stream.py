"""Parses the LangGraph wire format: parts of a run's stream, messages and interrupts of a thread. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Message = Mapping[str, Any]


INTERRUPTS = "__interrupt__"
"""The key of the interrupts in a thread's values."""

STEERING = "steering"
"""Key in `additional_kwargs` that marks a message as injected into a run."""

FRAMEWORK_NAMES = frozenset({"summary", "todo_reminder", "loop_warning"})
"""Names of human messages that no person wrote, in Parley and DeerFlow."""

SENDER = "sender"
"""Key in `additional_kwargs` with the author of a message: `{"id", "name"}`. Only the bus sets it."""

CHAT_TYPE = "chat_type"
"""Key in `additional_kwargs` that says whether a message was written in a `private` chat or in a `group`."""

IS_ADDRESSED = "is_addressed"
"""Key in `additional_kwargs` that is False for a group message that does not mention the bot."""

ORIGIN = "origin"
"""Key in `additional_kwargs` that says what sent a message for its author: `schedule`, `hook`; missing = the author."""

CLARIFICATION = "ask_clarification"
"""The tool that asks the person a question."""


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The server accepted the run."""

    run_id: str


@dataclass(frozen=True, slots=True)
class MessageChunk:
    """Text of one message: a delta, or all of it (`whole`). `kind` is ai, tool, human ..."""

    message_id: str
    kind: str
    text: str
    whole: bool


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """The thread's state after a step."""

    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolProgressEvent:
    """An event that a tool or a subagent emitted, in the format of the emitter."""

    data: Any


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The run ended with an error. `error` is its class. `message` may name internals: log it, but do not show it."""

    error: str
    message: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The server reported the end of the run: success, interrupted, error or timeout."""

    status: str


RunPart = RunStarted | MessageChunk | StateSnapshot | ToolProgressEvent | RunFailed | RunEnded


def parse_part(event: str, data: Any) -> RunPart | None:  # noqa: ANN401 - this is the wire
    """Parse one SSE event. Return None if the bus does not need it. Pure.

    >>> parse_part("messages", [{"type": "AIMessageChunk", "id": "m", "content": "hi"}, {}])
    MessageChunk(message_id='m', kind='ai', text='hi', whole=False)
    >>> parse_part("messages|child:1", [{"type": "AIMessageChunk", "id": "m", "content": "hi"}, {}])
    >>> parse_part("end", None)
    RunEnded(status='')
    """
    reader = _READERS.get(event)
    return reader(data) if reader else None


def is_error_reply(message: Message) -> bool:
    """Return whether a message only reports a failure of the agent. Parley or DeerFlow marks such messages."""
    extra = _extra(message)
    return bool(extra.get("error_fallback") or extra.get("deerflow_error_fallback"))


def is_hidden(message: Message) -> bool:
    """Return whether a message comes from the framework and is not meant for people."""
    return bool(_extra(message).get("hide_from_ui")) or message.get("name") in FRAMEWORK_NAMES


def is_user_message(message: Message) -> bool:
    """Return whether a person wrote a message.

    >>> is_user_message({"type": "human"}), is_user_message({"type": "human", "name": "summary"})
    (True, False)
    """
    return message.get("type") in ("human", "user") and not is_hidden(message)


def is_steering(message: Message) -> bool:
    """Return whether a message was injected into a run.

    >>> is_steering({"additional_kwargs": {"steering": True}}), is_steering({"id": "m"})
    (True, False)
    """
    return _extra(message).get(STEERING) is True


def sender_of(message: Message) -> tuple[str, str]:
    """Return the platform's ID and the name of a message's author; ("", "") = unknown.

    >>> sender_of({"additional_kwargs": {"sender": {"id": "U1", "name": "Ann"}}}), sender_of({})
    (('U1', 'Ann'), ('', ''))
    """
    sender = _extra(message).get(SENDER)
    known = sender if isinstance(sender, dict) else {}
    return str(known.get("id") or ""), str(known.get("name") or "")


def is_in_group(message: Message) -> bool:
    """Return whether a message was written in a group."""
    return _extra(message).get(CHAT_TYPE) == "group"


def is_question(message: Message) -> bool:
    """Return whether a message is a question of the agent."""
    return message.get("type") == "tool" and message.get("name") == CLARIFICATION


def _extra(message: Message) -> Mapping[str, Any]:
    extra = message.get("additional_kwargs")
    return extra if isinstance(extra, dict) else {}


def _values(data: Any) -> StateSnapshot | None:  # noqa: ANN401 - this is the wire
    return StateSnapshot(data) if isinstance(data, dict) else None


def _started(data: Any) -> RunStarted | None:  # noqa: ANN401 - this is the wire
    return (
        RunStarted(str(data["run_id"])) if isinstance(data, dict) and data.get("run_id") else None
    )


def _ended(data: Any) -> RunEnded:  # noqa: ANN401 - this is the wire
    return RunEnded(str(data.get("status") or "") if isinstance(data, dict) else "")


def _chunk(data: Any) -> MessageChunk | None:  # noqa: ANN401 - this is the wire
    message = data[0] if isinstance(data, list) and data else data
    if not isinstance(message, dict) or is_error_reply(message):
        return None  # An error reply is part of the final answer, never shown as progress.
    kind = str(message.get("type") or "")
    return MessageChunk(
        message_id=str(message.get("id") or ""),
        kind="ai" if kind.lower().startswith(("ai", "assistant")) else kind,
        text=text_of(message),
        whole=not kind.endswith("Chunk"),
    )


def _failure(data: Any) -> RunFailed:  # noqa: ANN401 - this is the wire
    if not isinstance(data, dict):
        return RunFailed("Error", str(data))
    name = data.get("error") or data.get("name") or "Error"
    return RunFailed(str(name), str(data.get("message") or ""))


_READERS: Mapping[str, Callable[[Any], RunPart | None]] = {
    "metadata": _started,
    "messages": _chunk,
    "messages-tuple": _chunk,
    "values": _values,
    "custom": ToolProgressEvent,
    "error": _failure,
    "end": _ended,
}


def text_of(message: Message) -> str:
    """Return the text of a message whose content is a string or a list of blocks.

    >>> text_of({"content": [{"type": "text", "text": "a"}, {"type": "image_url"}, "b"]})
    'ab'
    """
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(
        block if isinstance(block, str) else str(block.get("text") or "")
        for block in content
        if isinstance(block, str)
        or (isinstance(block, dict) and block.get("type") in ("text", "output_text"))
    )


def messages_in(values: Mapping[str, Any]) -> list[Message]:
    """Return the messages of a state."""
    return [one for one in values.get("messages") or [] if isinstance(one, dict)]


def has_message(values: Mapping[str, Any], message_id: str) -> bool:
    """Return whether a state contains a message."""
    return any(message.get("id") == message_id for message in messages_in(values))


def interrupts_in(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the interrupts of a thread's state. Older servers report them only with the tasks.

    >>> interrupts_in({"tasks": [{"interrupts": [{"id": "i", "value": "?"}]}]})
    [{'id': 'i', 'value': '?'}]
    """
    tasks = [task for task in state.get("tasks") or [] if isinstance(task, dict)]
    of_tasks = [one for task in tasks for one in task.get("interrupts") or []]
    return [one for one in state.get("interrupts") or of_tasks if isinstance(one, dict)]


def values_of(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values of a state with the interrupts of its thread; empty for a new thread."""
    values = state.get("values") or {}
    if not isinstance(values, dict):
        return {}
    waits = interrupts_in(state)
    return {**values, INTERRUPTS: waits} if waits else values
