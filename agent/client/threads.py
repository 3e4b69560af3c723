"""ThreadIndex: lists threads from the database, or from the caller's own checkpointer."""

import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from typing_extensions import override

from agent.client.events import public_state
from store.checkpoints import CheckpointSaver
from store.errors import RowConflict
from store.threads import ThreadQuery, ThreadStore

View = dict[str, Any]


class ThreadIndex(Protocol):
    """Lists threads."""

    async def mark_started(self, thread_id: str) -> None:
        """Record the start of a turn."""

    async def mark_finished(self, thread_id: str, title: str | None) -> None:
        """Record the end of a turn, successful or not. `title` is the thread's title, if it has one."""

    async def list_recent(self, limit: int) -> list[View]:
        """Return the most recently used threads, latest first."""

    async def delete(self, thread_id: str) -> None:
        """Delete a thread and its state."""


class StoredThreadIndex(ThreadIndex):
    """Threads in the data folder, from the service and from clients."""

    def __init__(self, threads: ThreadStore, checkpoints: CheckpointSaver) -> None:
        self._threads = threads
        self._checkpoints = checkpoints

    @override
    async def mark_started(self, thread_id: str) -> None:
        with suppress(RowConflict):
            await self._threads.create(thread_id, {}, now=time.time())

    @override
    async def mark_finished(self, thread_id: str, title: str | None) -> None:
        await self._threads.mark_state_changed(
            thread_id, status="idle", interrupts={}, title=title, now=time.time()
        )
        await self._checkpoints.trim_thread(thread_id)

    @override
    async def list_recent(self, limit: int) -> list[View]:
        found = await self._threads.search(ThreadQuery(limit=limit))
        return [
            {
                "thread_id": thread.thread_id,
                "created_at": _format_time(thread.created_at),
                "updated_at": _format_time(thread.updated_at),
                "latest_checkpoint_id": await self._latest(thread.thread_id),
                "title": thread.title,
            }
            for thread in found
        ]

    @override
    async def delete(self, thread_id: str) -> None:
        await self._threads.delete(thread_id)
        await self._checkpoints.adelete_thread(thread_id)

    async def _latest(self, thread_id: str) -> str | None:
        found = await self._checkpoints.aget_tuple(root_checkpoint_config(thread_id))
        return found.checkpoint["id"] if found is not None else None


class CheckpointThreadIndex(ThreadIndex):
    """Threads of a checkpointer that stores only checkpoints. Listing threads reads all checkpoints."""

    def __init__(self, checkpointer: BaseCheckpointSaver[Any]) -> None:
        self._checkpointer = checkpointer

    @override
    async def mark_started(self, thread_id: str) -> None:
        return None

    @override
    async def mark_finished(self, thread_id: str, title: str | None) -> None:
        return None

    @override
    async def list_recent(self, limit: int) -> list[View]:
        newest: dict[str, CheckpointTuple] = {}
        first: dict[str, str] = {}
        async for found in self._checkpointer.alist(None):
            options = found.config["configurable"]
            if options.get("checkpoint_ns"):
                continue
            thread_id, at = options["thread_id"], found.checkpoint["ts"]
            first[thread_id] = min(at, first.get(thread_id, at))
            if thread_id not in newest or newest[thread_id].checkpoint["ts"] < at:
                newest[thread_id] = found
        ordered = sorted(newest, key=lambda thread_id: newest[thread_id].checkpoint["ts"])
        return [
            {
                "thread_id": thread_id,
                "created_at": first[thread_id],
                "updated_at": newest[thread_id].checkpoint["ts"],
                "latest_checkpoint_id": newest[thread_id].checkpoint["id"],
                "title": newest[thread_id].checkpoint["channel_values"].get("title"),
            }
            for thread_id in reversed(ordered[-limit:] if limit > 0 else [])
        ]

    @override
    async def delete(self, thread_id: str) -> None:
        await self._checkpointer.adelete_thread(thread_id)


async def list_checkpoints(
    checkpointer: BaseCheckpointSaver[Any], thread_id: str
) -> list[Mapping[str, Any]]:
    """Return a thread's checkpoints, oldest first. Empty for an unknown thread."""
    found = [
        _checkpoint_to_json(one)
        async for one in checkpointer.alist(root_checkpoint_config(thread_id))
    ]
    return sorted(found, key=lambda view: str(view["ts"]))


def root_checkpoint_config(thread_id: str) -> RunnableConfig:
    """Return the config for a thread's own checkpoints, without those of subgraphs."""
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}


def _checkpoint_to_json(found: CheckpointTuple) -> View:
    parent = found.parent_config
    return {
        "checkpoint_id": found.checkpoint["id"],
        "parent_checkpoint_id": parent["configurable"]["checkpoint_id"] if parent else None,
        "ts": found.checkpoint["ts"],
        "metadata": dict(found.metadata),
        "values": public_state(found.checkpoint["channel_values"]),
    }


def _format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()
