"""Requests of the bus for runs, and people's messages in the LangGraph wire format. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bus.config import LEAD_AGENT
from bus.messages import InboundMessage, Sender
from bus.runs.stream import CHAT_TYPE, FRAMEWORK_NAMES, IS_ADDRESSED, ORIGIN, SENDER

STREAM_MODES = ("messages-tuple", "values", "custom")
"""The stream modes that the bus reads."""

RUN_OPTIONS: Mapping[str, Any] = {
    "durability": "sync",  # After a crash, a turn continues from its last step, without running tools again.
    "stream_resumable": True,
    "multitask_strategy": "enqueue",
}
"""Options of the bus's runs."""

MAX_NAME_CHARS = 64
"""Maximum length of a message's `name` at OpenAI, characters."""

_REFUSED_IN_NAMES = re.compile(r"[\s<|\\/>]+")
"""Characters that OpenAI does not allow in a message's `name`. It rejects the whole request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRunRequest:
    """A run to start.

    Attributes:
        inbound: The message that it answers. The agent gets the names of its sender and chat.
        text: The person's text.
        resume: The answer to the thread's interrupts, instead of `text`; None = none.
        files: Its files, as named in the thread's uploads.
        message_id: The human message's ID, by which a restart finds the message in the state. One run answers a
            message, so the ID is also the key of the start.
        is_again: Whether an earlier start may have reached the server or changed the thread.
        known_run_id: The run that answers the message; "" = unknown. On servers without metadata, only this identifies
            the run.
        answers_question: Whether the message answers an interrupt of the thread, now or before an earlier start.
        traceparent: The W3C trace context of the run; "" = none.
    """

    thread_id: str
    assistant_id: str
    message_id: str
    inbound: InboundMessage
    text: str | None
    resume: object = None
    is_again: bool = False
    known_run_id: str = ""
    answers_question: bool = False
    files: Sequence[Mapping[str, Any]] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    traceparent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringMessage:
    """A message to inject into a run. Fields as in `AgentRunRequest`."""

    assistant_id: str
    message_id: str
    inbound: InboundMessage
    text: str
    files: Sequence[Mapping[str, Any]] = ()


def run_body(request: AgentRunRequest) -> dict[str, Any]:
    """Return a run's input or command, its options and its metadata, with the field names of LangGraph's API."""
    said = None if request.text is None else {"messages": [human_message(request, {})]}
    return {
        "input": said,
        "command": None if request.resume is None else {"resume": request.resume},
        "config": dict(request.config),
        "context": dict(request.context),
        "metadata": {"message_id": request.message_id},
        "stream_mode": list(STREAM_MODES),
    }


def answers_message(
    metadata: Mapping[str, Any], run_id: str, *, message_id: str, known_id: str | None
) -> bool:
    """Return whether a run with this metadata answers a message. `known_id`: the run in the message's row.

    If a server keeps no metadata, only the ID identifies the run.

    >>> answers_message({"message_id": "m"}, "r", message_id="m", known_id=None)
    True
    >>> answers_message({}, "r", message_id="m", known_id="r")
    True
    """
    answered = metadata.get("message_id")
    return answered == message_id or (answered is None and run_id == known_id)


def human_message(
    request: AgentRunRequest | SteeringMessage, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a person's message in the wire format. `additional_kwargs`, which only the bus sets, names its author.

    Other graphs also get `name`. The lead agent instead names the author in the text for its model.
    """
    author = request.inbound.author
    further: dict[str, Any] = {
        **extra,
        SENDER: {"id": author.user_id, "name": author.name},
        CHAT_TYPE: request.inbound.chat_type,
    }
    if request.inbound.origin:
        further[ORIGIN] = request.inbound.origin_kind
    elif request.inbound.may_be_declined:
        further[IS_ADDRESSED] = False
    if request.files:
        further["files"] = [dict(file) for file in request.files]
    name = message_name(author) if request.assistant_id != LEAD_AGENT else ""
    return {
        "role": "human",
        "content": request.text,
        "id": request.message_id,
        **({"name": name} if name else {}),
        "additional_kwargs": further,
    }


def message_name(author: Sender) -> str:
    """Return a `name` for a person's message that model servers accept, because graphs pass messages to them.

    >>> message_name(Sender(user_id="U1", name="Ann Lee")), message_name(Sender(user_id="U1"))
    ('Ann_Lee', 'U1')
    """
    name = _REFUSED_IN_NAMES.sub("_", author.name or author.user_id)[:MAX_NAME_CHARS]
    return "" if name in FRAMEWORK_NAMES else name  # The framework's own messages have these names.
