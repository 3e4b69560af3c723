"""Which conversation is at work: for log lines. Set in the task of a turn or command, and so known to all in it."""

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType

LOG_CONTEXT: ContextVar[Mapping[str, str]] = ContextVar(
    "parley_marks", default=MappingProxyType({})
)
"""Names of log fields and their values; empty outside of conversations."""


def bind_conversation(channel: str, conversation_id: int, thread_id: str | None) -> None:
    """Say that a message is at work: from now on, in this task and those that it starts."""
    marks = {"channel": channel, "conversation": str(conversation_id)}
    LOG_CONTEXT.set({**marks, "thread": thread_id} if thread_id else marks)


def bind_run(run_id: str) -> None:
    """Say which run answers the message."""
    LOG_CONTEXT.set({**LOG_CONTEXT.get(), "run": run_id})
