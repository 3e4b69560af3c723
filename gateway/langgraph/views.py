"""Converts rows and states to the LangGraph wire format. Pure."""

from typing import Any

import orjson
from langchain_core.runnables import RunnableConfig
from langgraph.types import PregelTask, StateSnapshot

from gateway.runtime.assistants import assistant_id_for_graph
from gateway.runtime.run_view import format_timestamp
from store.assistants import Assistant
from store.schedules import Schedule
from store.threads import Thread, ThreadExpiry

View = dict[str, Any]

BUILT_IN_CREATED_AT = 1704067200.0
"""Creation time of built-in assistants, Unix seconds, because they have no row."""


def thread_view(thread: Thread, values: object) -> View:
    """Return a Thread."""
    return {
        "thread_id": thread.thread_id,
        "created_at": format_timestamp(thread.created_at),
        "updated_at": format_timestamp(thread.updated_at),
        "state_updated_at": format_timestamp(thread.state_updated_at),
        "metadata": thread.metadata,
        "status": thread.status,
        "config": {"configurable": {}},
        "values": values,
        "error": thread.error,
        "interrupts": thread.interrupts,
    }


def ttl_view(ttl: ThreadExpiry | None) -> View | None:
    """Return a thread's time to live; None = unlimited."""
    if ttl is None:
        return None
    return {
        "strategy": ttl.strategy,
        "ttl_minutes": ttl.minutes,
        "expires_at": None if ttl.expires_at is None else format_timestamp(ttl.expires_at),
    }


def cron_payload(cron: Schedule) -> View:
    """Return the run that a cron starts, as the client gave it."""
    payload: View = orjson.loads(cron.body)
    return payload


def cron_view(cron: Schedule) -> View:
    """Return a Cron."""
    payload = cron_payload(cron)
    config = dict(payload.get("config") or {})
    config["configurable"] = {**(config.get("configurable") or {}), "cron_id": cron.id}
    return {
        "cron_id": cron.id,
        "assistant_id": cron.assistant_id,
        "thread_id": cron.thread_id,
        "user_id": "",
        "end_time": None if cron.end_at is None else format_timestamp(cron.end_at),
        "schedule": cron.expression,
        "timezone": cron.timezone or None,
        "payload": {**payload, "schedule": cron.expression, "config": config},
        "next_run_date": None if cron.next_at is None else format_timestamp(cron.next_at),
        "metadata": cron.metadata,
        "on_run_completed": cron.on_run_completed,
        "enabled": cron.is_enabled,
        "created_at": format_timestamp(cron.created_at),
        "updated_at": format_timestamp(cron.updated_at),
    }


def assistant_of_graph(graph_id: str) -> Assistant:
    """Return the built-in assistant of a graph."""
    return Assistant(
        assistant_id=assistant_id_for_graph(graph_id),
        graph_id=graph_id,
        name=graph_id,
        metadata={"created_by": "system"},
        created_at=BUILT_IN_CREATED_AT,
        updated_at=BUILT_IN_CREATED_AT,
        version_created_at=BUILT_IN_CREATED_AT,
    )


def assistant_view(one: Assistant) -> View:
    """Return an Assistant."""
    return {
        "assistant_id": one.assistant_id,
        "graph_id": one.graph_id,
        "config": one.config,
        "context": one.context,
        "metadata": one.metadata,
        "name": one.name,
        "created_at": format_timestamp(one.created_at),
        "updated_at": format_timestamp(one.updated_at),
        "version": one.version,
        "description": one.description,
    }


def version_view(one: Assistant) -> View:
    """Return a version of an Assistant. It has no `updated_at`."""
    view = assistant_view(one) | {"created_at": format_timestamp(one.version_created_at)}
    del view["updated_at"]
    return view


def state_view(state: StateSnapshot | None) -> View:
    """Return a ThreadState. Without a checkpoint, return the state of a thread without runs."""
    checkpoint = checkpoint_view(state.config) if state else None
    if state is None or checkpoint is None or checkpoint["checkpoint_id"] is None:
        return {
            "values": {},
            "next": [],
            "tasks": [],
            "metadata": None,
            "created_at": None,
            "checkpoint": None,
            "parent_checkpoint": None,
            "interrupts": [],
            "checkpoint_id": None,
            "parent_checkpoint_id": None,
        }
    parent = checkpoint_view(state.parent_config)
    return {
        "values": state.values,
        "next": state.next,
        "tasks": [_task_view(task) for task in state.tasks],
        "metadata": state.metadata,
        "created_at": state.created_at,
        "checkpoint": checkpoint,
        "parent_checkpoint": parent,
        "interrupts": [_interrupt_view(one) for one in state.interrupts],
        "checkpoint_id": checkpoint["checkpoint_id"],
        "parent_checkpoint_id": parent["checkpoint_id"] if parent else None,
    }


def checkpoint_view(config: RunnableConfig | None) -> View | None:
    """Return the checkpoint of a config."""
    if not config:
        return None
    where = config["configurable"]
    return {
        "checkpoint_id": where.get("checkpoint_id"),
        "thread_id": where.get("thread_id"),
        "checkpoint_ns": where.get("checkpoint_ns", ""),
    }


def _task_view(task: PregelTask) -> View:
    nested = task.state
    return {
        "id": task.id,
        "name": task.name,
        "path": task.path,
        "error": _error_text(task.error),
        "interrupts": [_interrupt_view(one) for one in task.interrupts],
        "checkpoint": nested["configurable"] if isinstance(nested, dict) else None,
        "state": state_view(nested) if isinstance(nested, StateSnapshot) else None,
        "result": task.result,
    }


def _error_text(error: object) -> str | None:
    """Return a task's error as text. An error from a checkpoint already is text."""
    if not error:
        return None
    return error if isinstance(error, str) else repr(error)


def _interrupt_view(one: Any) -> View:  # noqa: ANN401 - LangGraph's Interrupt, with any value
    return {"id": one.id, "value": one.value}
