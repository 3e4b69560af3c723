"""ThreadStates: reads, lists and updates the states of threads."""

import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.constants import END
from langgraph.errors import InvalidUpdateError
from langgraph.types import StateSnapshot, StateUpdate
from langgraph_sdk.runtime import AccessContext

from gateway.runtime.creation import require_checkpoint
from gateway.runtime.errors import InvalidRequest, ThreadBusyError
from gateway.runtime.execution import Graph, interrupts_by_task
from gateway.runtime.graph_sources import GraphFactory
from gateway.runtime.lifecycle import state_fields
from gateway.runtime.masking import mask_secrets
from gateway.runtime.message_state import has_messages
from gateway.runtime.request import merge_options, parse_command, parse_state_values
from gateway.runtime.runs import RunManager
from store.delta_histories import has_deltas
from store.threads import Thread

log = logging.getLogger(__name__)

_METADATA_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
"""A dotted path to a field of a checkpoint's metadata."""

_INTERNAL_CHANNELS = ("__", "branch:", "join:")
"""Prefixes of LangGraph's internal channels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStateUpdate:
    """An update of a thread's state from outside a run.

    Attributes:
        values: As returned by a node. None with `as_node` only advances the graph.
        as_node: The node that the update is attributed to.
        checkpoint: The checkpoint to fork from. Empty = the newest checkpoint.
    """

    values: Any = None
    as_node: str | None = None
    checkpoint: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuperstepUpdate:
    """One update of a superstep: values as returned by `as_node`, or a command."""

    as_node: str
    values: Any = None
    command: Mapping[str, Any] | None = None


class ThreadStates:
    """The states of threads, read through the graph that last ran on them."""

    def __init__(self, runs: RunManager) -> None:
        self._runs = runs

    async def values(self, thread: Thread) -> Any:  # noqa: ANN401 - an @entrypoint may return anything
        """Return the latest saved values. None before the first. Only values with deltas need the graph."""
        found = await self._runs.checkpointer.aget_tuple(_checkpoint_config(thread.thread_id, {}))
        if found is None:
            return None
        channels = found.checkpoint["channel_values"]
        if END in channels:
            return channels[END]
        shown = {k: v for k, v in channels.items() if not k.startswith(_INTERNAL_CHANNELS)}
        if has_deltas(found):
            try:
                state = await self.snapshot(thread, {})
            except Exception:
                log.exception("The values of thread %s cannot be computed.", thread.thread_id)
            else:
                return shown if state is None else state.values
        return shown

    async def snapshot(
        self, thread: Thread, checkpoint: Mapping[str, Any], *, subgraphs: bool = False
    ) -> StateSnapshot | None:
        """Return the state at a checkpoint (empty = the latest). None without a graph."""
        if (graph_id := self._graph_id(thread)) is None:
            return None
        async with self._open(graph_id, thread, "threads.read") as graph:
            return await graph.aget_state(
                _checkpoint_config(thread.thread_id, checkpoint), subgraphs=subgraphs
            )

    async def has_subgraph(self, thread: Thread, namespace: Sequence[str]) -> bool:
        """Return whether a thread's graph has a subgraph with this namespace."""
        if (graph_id := self._graph_id(thread)) is None:
            return False
        wanted = "|".join(step.partition(":")[0] for step in namespace)
        async with self._open(graph_id, thread, "threads.read") as graph:
            async for _ in graph.aget_subgraphs(namespace=wanted, recurse=True):
                return True
        return False

    async def history(
        self,
        thread: Thread,
        *,
        limit: int,
        before: Mapping[str, Any] | None,
        metadata: Mapping[str, Any] | None,
        checkpoint: Mapping[str, Any],
    ) -> AsyncIterator[StateSnapshot]:
        """Yield past states, latest first. Each state is read when it is requested. Raises InvalidRequest."""
        _check_filter(metadata or {})
        if (graph_id := self._graph_id(thread)) is None:
            return
        config = _checkpoint_config(thread.thread_id, checkpoint)
        earlier = _checkpoint_config(thread.thread_id, before) if before else None
        async with self._open(graph_id, thread, "threads.read") as graph:
            found = graph.aget_state_history(
                config, filter=dict(metadata or {}) or None, before=earlier, limit=limit
            )
            async for snapshot in found:
                yield snapshot

    async def update(self, thread: Thread, change: ThreadStateUpdate) -> RunnableConfig:
        """Write a new checkpoint and return its config.

        Raises:
            ThreadBusyError: A run holds the thread.
            ThreadAtOtherNode: A run of another node holds the thread.
            InvalidRequest: The graph rejects the update.
            RowNotFound: The checkpoint does not exist.
        """
        graph_id = str(thread.metadata.get("graph_id"))
        if graph_id not in self._runs.graphs:
            # Another graph would drop the keys that its state does not have.
            raise InvalidRequest(
                "The thread has no graph yet: start a run on it first, or create it with metadata.graph_id."
            )
        config = _checkpoint_config(thread.thread_id, change.checkpoint)
        async with (
            self._runs.lock_thread(thread.thread_id),
            self._open(graph_id, thread, "threads.update") as graph,
        ):
            await self._runs.check_thread(thread.thread_id)
            if self._runs.active_on_thread(thread.thread_id):
                raise ThreadBusyError  # An ended node left runs on it.
            await require_checkpoint(self._runs.checkpointer, thread.thread_id, change.checkpoint)
            try:
                values = parse_state_values(change.values, has_messages=has_messages(graph))
                written = await graph.aupdate_state(config, values, as_node=change.as_node)
            except (ValueError, TypeError, KeyError, InvalidUpdateError) as error:
                raise InvalidRequest(mask_secrets(str(error))) from error
            await self._mark_changed(graph, thread.thread_id)
        return written

    async def create_from_supersteps(
        self, thread: Thread, supersteps: Sequence[Sequence[SuperstepUpdate]]
    ) -> None:
        """Create a new thread's states, one checkpoint per superstep. Raises InvalidRequest."""
        if thread.metadata.get("graph_id") not in self._runs.graphs:
            raise InvalidRequest(
                "supersteps need metadata.graph_id: the name of the graph.", malformed=True
            )
        async with self._open(thread.metadata["graph_id"], thread, "threads.update") as graph:
            converts = has_messages(graph)
            updates = [
                [_state_update(one, converts=converts) for one in step] for step in supersteps
            ]
            try:
                await graph.abulk_update_state(_checkpoint_config(thread.thread_id, {}), updates)
            except (ValueError, TypeError, KeyError, InvalidUpdateError) as error:
                await self._runs.checkpointer.adelete_thread(thread.thread_id)
                raise InvalidRequest(mask_secrets(str(error))) from error
            await self._mark_changed(graph, thread.thread_id)

    async def _mark_changed(self, graph: Graph, thread_id: str) -> None:
        """Update the thread's row to match its new state."""
        state = await graph.aget_state(_checkpoint_config(thread_id, {}))
        title = state_fields(state.values).get("title")
        await self._runs.threads.mark_state_changed(
            thread_id,
            status="interrupted" if state.next else "idle",
            interrupts=interrupts_by_task(state),
            title=title if isinstance(title, str) else None,
            now=self._runs.now(),
        )

    def _graph_id(self, thread: Thread) -> str | None:
        """Return the graph of the thread's last run, or else the first graph. None = no graphs exist."""
        graphs = self._runs.graphs
        used = thread.metadata.get("graph_id")
        return used if used in graphs else next(iter(graphs), None)

    @asynccontextmanager
    async def _open(
        self, graph_id: str, thread: Thread, access: AccessContext
    ) -> AsyncIterator[Graph]:
        """Yield a graph for a thread. A function makes the graph as it did for the thread's last run."""
        config = _checkpoint_config(thread.thread_id, {})
        if isinstance(self._runs.graphs[graph_id], GraphFactory):
            config["configurable"] = await self._last_options(thread) | config["configurable"]
        async with self._runs.open_graph(graph_id, config, access) as graph:
            yield graph

    async def _last_options(self, thread: Thread) -> dict[str, Any]:
        """Return the options of the thread's assistant and of its last run."""
        used = await self._runs.assistants.find(str(thread.metadata.get("assistant_id")))
        options = merge_options(used.config, used.context) if used else {}
        for run in await self._runs.rows.list_by_thread(thread.thread_id, limit=1):
            options |= merge_options(
                run.kwargs.get("config") or {}, run.kwargs.get("context") or {}
            )
        return options


def _check_filter(metadata: Mapping[str, Any]) -> None:
    """Check that the checkpointer can filter by these fields. Raises InvalidRequest."""
    for key, value in metadata.items():
        if _METADATA_KEY.fullmatch(key) is None:
            raise InvalidRequest(
                "metadata: names consist of letters, digits, `_` and `-`, with dots between them.",
                malformed=True,
            )
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InvalidRequest(f"metadata.{key}: the number is too large.", malformed=True)


def _state_update(step: SuperstepUpdate, *, converts: bool) -> StateUpdate:
    values = (
        parse_state_values(step.values, has_messages=converts)
        if step.command is None
        else parse_command(step.command, has_messages=converts)
    )
    return StateUpdate(values=values, as_node=step.as_node)  # type: ignore[arg-type]  # it accepts a Command, too


def _checkpoint_config(thread_id: str, checkpoint: Mapping[str, Any]) -> RunnableConfig:
    where: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": ""}
    for key in ("checkpoint_id", "checkpoint_ns"):
        if checkpoint.get(key):
            where[key] = str(checkpoint[key])
    return {"configurable": where}
