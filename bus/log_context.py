"""Log context: adds the conversation and run of the current task to each log line."""

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType

LOG_CONTEXT: ContextVar[Mapping[str, str]] = ContextVar(
    "parley_log_context", default=MappingProxyType({})
)
"""Log fields and their values; empty outside of conversations."""


def bind_conversation(channel: str, conversation_id: int, thread_id: str | None) -> None:
    """Bind a conversation to the current task and the tasks it starts."""
    fields = {"channel": channel, "conversation": str(conversation_id)}
    LOG_CONTEXT.set({**fields, "thread": thread_id} if thread_id else fields)


def bind_run(run_id: str) -> None:
    """Bind the run to the current task."""
    LOG_CONTEXT.set({**LOG_CONTEXT.get(), "run": run_id})
