"""What the bus asks of a run: the requests, and the message of a person as the wire has it. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bus.config import LEAD_AGENT
from bus.messages import InboundMessage, Sender
from bus.runs.stream import CHAT_TYPE, FRAMEWORK_NAMES, SENDER

STREAM_MODES = ("messages-tuple", "values", "custom")
"""The events that the bus reads of a run."""

RUN_OPTIONS: Mapping[str, Any] = {
    "durability": "sync",  # a turn cut off by a crash goes on from its last step (tools are not run again)
    "stream_resumable": True,
    "multitask_strategy": "enqueue",
}
"""How runs of the bus are executed."""

MAX_NAME_CHARS = 64
"""The longest `name` of a message that OpenAI takes."""

_REFUSED_IN_NAMES = re.compile(r"[\s<|\\/>]+")
"""What OpenAI refuses in the `name` of a message, with an error for the whole request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRunRequest:
    """A run to start.

    Attributes:
        inbound: The message that it answers: its sender and chat are named to the agent.
        text: The person's text; None = continue from the thread's last checkpoint.
        resume: The answer to what the thread is interrupted by, instead of `text`; None = none.
        files: The files that came with it, as the thread's uploads name them.
        message_id: The id that the human message gets, so that a restart finds it in the state.
        traceparent: The W3C trace context that the run belongs to; "" = none.
    """

    thread_id: str
    assistant_id: str
    message_id: str
    inbound: InboundMessage
    text: str | None
    resume: object = None
    files: Sequence[Mapping[str, Any]] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    traceparent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringMessage:
    """A message to inject into a run; the fields are those of `AgentRunRequest`."""

    assistant_id: str
    message_id: str
    inbound: InboundMessage
    text: str
    files: Sequence[Mapping[str, Any]] = ()


def run_body(request: AgentRunRequest) -> dict[str, Any]:
    """Return a run's input or command, its options and metadata, as LangGraph's API names them."""
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
    """Return whether a run with this metadata answers a message; `known_id`: the run that its row names.

    Servers that keep no metadata know their runs by the ID alone.

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
    """Return a person's message as the wire has it, with who wrote it where only the bus writes.

    Graphs of one's own get `name` as well; the lead agent tells its model who speaks in the text.
    """
    author = request.inbound.author
    further: dict[str, Any] = {
        **extra,
        SENDER: {"id": author.user_id, "name": author.name},
        CHAT_TYPE: request.inbound.chat_type,
    }
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
    """Return the `name` of a person's message, as model servers take it: a graph hands its messages to one.

    >>> message_name(Sender(user_id="U1", name="Ann Lee")), message_name(Sender(user_id="U1"))
    ('Ann_Lee', 'U1')
    """
    name = _REFUSED_IN_NAMES.sub("_", author.name or author.user_id)[:MAX_NAME_CHARS]
    return "" if name in FRAMEWORK_NAMES else name  # it would pass for the framework's message
