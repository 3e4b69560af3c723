"""State commands of the newer streaming protocol."""

from typing import Any

from langgraph.types import StateSnapshot

from gateway.langgraph.views import checkpoint_view
from gateway.runtime.lifecycle import state_fields
from gateway.services import Services
from store.threads import Thread

Json = dict[str, Any]
MAX_CHECKPOINTS = 1000
DEFAULT_CHECKPOINTS = 10


class ProtocolError(Exception):
    """A command failed. `code` is an error code of the protocol."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def get_state(services: Services, thread_id: str, params: Json) -> Json:
    """Return the latest values of the thread or of a subgraph, optionally only some keys."""
    thread = await services.runs.threads.get(thread_id)
    state = await services.states.snapshot(
        thread, await _checkpoint_config(services, thread, params)
    )
    values = {} if state is None or state.values is None else state.values
    keys = params.get("keys")
    if keys is not None:
        if not isinstance(keys, list):
            raise ProtocolError("invalid_argument", "keys must be a list of names.")
        fields = state_fields(values)
        values = {key: fields[key] for key in keys if isinstance(key, str) and key in fields}
    where = checkpoint_view(state.config) if state else None
    if where is None or where["checkpoint_id"] is None:
        return {"values": values}
    reference = {"id": where["checkpoint_id"], "ns": where["checkpoint_ns"]}
    return {"values": values, "checkpoint": reference}


async def list_checkpoints(services: Services, thread_id: str, params: Json) -> Json:
    """List past states, newest first."""
    thread = await services.runs.threads.get(thread_id)
    limit, before = params.get("limit", DEFAULT_CHECKPOINTS), params.get("before")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 0 < limit <= MAX_CHECKPOINTS:
        raise ProtocolError("invalid_argument", f"limit must be from 1 to {MAX_CHECKPOINTS}.")
    if before is not None and not isinstance(before, str):
        raise ProtocolError("invalid_argument", "before must be a checkpoint ID.")
    found = services.states.history(
        thread,
        limit=limit,
        before={"checkpoint_id": before} if before else None,
        metadata=None,
        checkpoint=await _checkpoint_config(services, thread, params),
    )
    return {"checkpoints": [_checkpoint_summary(state) async for state in found]}


async def get_checkpoint_id(services: Services, thread: Thread, params: Json) -> str:
    """Return the ID of an existing checkpoint of the thread. Raises ProtocolError."""
    wanted = params.get("checkpoint_id")
    if not isinstance(wanted, str) or not wanted:
        raise ProtocolError("invalid_argument", "checkpoint_id must be a checkpoint ID.")
    state = await services.states.snapshot(thread, {"checkpoint_id": wanted})
    if state is None or state.created_at is None:
        raise ProtocolError("no_such_checkpoint", "The checkpoint does not exist or was pruned.")
    return wanted


async def _checkpoint_config(services: Services, thread: Thread, params: Json) -> Json:
    """Return the checkpoint namespace of the requested state. Raises ProtocolError."""
    given = params.get("namespace") or []
    if not isinstance(given, list) or not all(isinstance(step, str) for step in given):
        raise ProtocolError("invalid_argument", "namespace must be a list of names.")
    if given and not await services.states.has_subgraph(thread, given):
        raise ProtocolError("no_such_namespace", "The graph has no such subgraph.")
    return {"checkpoint_ns": "|".join(given)}


def _checkpoint_summary(state: StateSnapshot) -> Json:
    where = checkpoint_view(state.config) or {}
    metadata = dict(state.metadata or {})
    return {
        "id": where.get("checkpoint_id"),
        "timestamp": state.created_at,
        "step": metadata.get("step", -1),
        "metadata": metadata,
    }
