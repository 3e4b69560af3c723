"""Builds run requests for the runtime from request bodies. Pure."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from gateway.langgraph.request_models import RunCreate
from gateway.runtime.errors import InvalidRequest
from gateway.runtime.request import MAX_DELAY_S, GraphRunRequest
from gateway.runtime.stream_modes import parse_stream_modes

_SERVER_KEYS = frozenset(
    {"thread_id", "assistant_id", "run_id", "cron_id", "counters_since_delta_snapshot"}
)
"""Keys of metadata that LangGraph's server accepts from no client. Like that server, Parley drops them silently."""


def build_run_request(body: RunCreate, thread_id: str | None) -> GraphRunRequest:
    """Return the request for the runtime. Raises InvalidRequest."""
    after_seconds = body.after_seconds or 0.0
    if not 0 <= after_seconds <= MAX_DELAY_S:
        raise InvalidRequest(
            f"after_seconds must be between 0 and {MAX_DELAY_S:.0f}.", malformed=True
        )
    checkpoint = dict(body.checkpoint or {})
    if body.checkpoint_id:
        checkpoint["checkpoint_id"] = body.checkpoint_id
        check_checkpoint_id(body.checkpoint_id)
    return GraphRunRequest(
        thread_id=thread_id,
        assistant_id=body.assistant_id,
        modes=parse_stream_modes(body.stream_mode, subgraphs=bool(body.stream_subgraphs)),
        input=body.input,
        command=body.command.model_dump() if body.command else None,
        config=_client_config(body.config or {}),
        context=body.context or {},
        metadata=_client_metadata(body.metadata or {}),
        checkpoint=checkpoint,
        interrupt_before=body.interrupt_before,
        interrupt_after=body.interrupt_after,
        multitask=body.multitask_strategy or "enqueue",
        durability=_durability(body),
        create_thread=body.if_not_exists == "create",
        keep_thread=body.on_completion == "keep",
        after_seconds=after_seconds,
        webhook=body.webhook or None,
        kwargs=_run_kwargs(body, temporary=thread_id is None and body.on_completion != "keep"),
    )


def _client_metadata(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata without the keys that only the server sets."""
    return {key: value for key, value in given.items() if key not in _SERVER_KEYS}


def _client_config(given: Mapping[str, Any]) -> dict[str, Any]:
    metadata = given.get("metadata")
    if not isinstance(metadata, Mapping):
        return dict(given)
    return {**given, "metadata": _client_metadata(metadata)}


def check_checkpoint_id(given: str) -> None:
    """Reject requests that LangGraph's server rejects. Raises InvalidRequest."""
    try:
        UUID(given)
    except ValueError:
        raise InvalidRequest("Invalid checkpoint ID", malformed=True) from None


def _durability(body: RunCreate) -> Any:  # noqa: ANN401 - the literal is the runtime's
    if body.durability is None and body.checkpoint_during is False:
        return "exit"
    return body.durability


def _run_kwargs(body: RunCreate, *, temporary: bool) -> dict[str, Any]:
    """Return the request as stored with the run."""
    modes = [body.stream_mode] if isinstance(body.stream_mode, str) else body.stream_mode
    durability = _durability(body)
    return {
        "input": body.input,
        "command": body.command.model_dump() if body.command else None,
        "config": body.config or {},
        "context": body.context or {},
        "stream_mode": modes or ["values"],
        "interrupt_before": body.interrupt_before,
        "interrupt_after": body.interrupt_after,
        "webhook": body.webhook,
        "feedback_keys": body.feedback_keys,
        "temporary": temporary,
        "subgraphs": bool(body.stream_subgraphs),
        "resumable": bool(body.stream_resumable),
        "checkpoint_during": durability != "exit",
        "durability": durability or ("exit" if temporary else "async"),
    }
