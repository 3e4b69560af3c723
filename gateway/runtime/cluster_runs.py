"""ClusterRuns: runs of all nodes, for the routes of any node. It reads and changes the runs of other nodes."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, replace
from typing import Any

import anyio
import orjson
from anyio.abc import TaskGroup

from agent.trace_context import TRACEPARENT
from gateway.runtime.creation import decode_start, encode_start
from gateway.runtime.errors import (
    InvalidRequest,
    RunRequestError,
    RuntimeClosing,
    ThreadBusyError,
    UnknownAssistant,
)
from gateway.runtime.lifecycle import CancelAction
from gateway.runtime.local_run import LocalRun
from gateway.runtime.request import GraphRunRequest
from gateway.runtime.run_copies import CopiedRun, RunCopies, describe
from gateway.runtime.runs import RunManager
from gateway.runtime.serialization import dumps
from gateway.runtime.shared_events import EventWriter
from gateway.runtime.stopping import hand_over
from gateway.runtime.thread_watchers import NoOtherNodes
from store.errors import RowNotFound, StoreError, StoreUnavailable
from store.node_calls import HAND_OVER, NodeCalls
from store.run_events import RunEventStore
from store.runs import Run, ThreadAtOtherNode
from store.work_group import WORK_GROUP

START, CANCEL, CANCEL_MANY, INJECT = "runs.start", "runs.cancel", "runs.cancel_many", "runs.inject"
"""Names of calls to the nodes that execute the runs."""

CALL_S = 30.0
"""How long to wait for the response of a living node, seconds: as long as a write to the database may take."""

MOVES = 20
MOVE_S = 0.1
"""How often to look for a thread's runs while they move between nodes, and how long to wait, seconds."""

Json = dict[str, Any]
Handler = Callable[[Json], Awaitable[Json]]

_REFUSALS = (RunRequestError, RowNotFound, ThreadAtOtherNode)
_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (InvalidRequest, RowNotFound, RuntimeClosing, ThreadBusyError, UnknownAssistant)
}
"""Errors with which a node may refuse a call. The caller raises them again."""

log = logging.getLogger(__name__)


class ClusterRuns:
    """Runs of all nodes. Runs of this node are read directly, and other runs through the node that executes them.

    Args:
        runs: The runs of this node.
        calls: Calls to other nodes.
        tasks: Runs the copying.
    """

    def __init__(self, runs: RunManager, calls: NodeCalls, tasks: TaskGroup) -> None:
        self._runs = runs
        self._calls = calls
        self._tasks = tasks
        store = RunEventStore(calls.database)
        self.writer = EventWriter(store, calls, lambda run_id: runs.find(None, run_id) is not None)
        self.copies = RunCopies(runs, store, calls, self.writer, self._cancel_soon, tasks)
        self._serve(START, self._start_here)
        self._serve(CANCEL, self._cancel_here)
        self._serve(CANCEL_MANY, self._cancel_many_here)
        self._serve(INJECT, self._inject_here)
        calls.serve(HAND_OVER, self._hand_over)

    async def find(self, run_id: str, *, thread_id: str = "") -> LocalRun | None:
        """Return a run whose events a node has in memory. As in `RunCopies.find`."""
        return await self.copies.find(run_id, thread_id=thread_id)

    async def start(self, request: GraphRunRequest) -> LocalRun:
        """Start a run, or queue it behind other runs of its thread at the node that executes them.

        Raises:
            Exception: As in `RunManager.start`.
            StoreUnavailable: The other node does not respond. The run may have been started.
        """
        for _ in range(MOVES):
            try:
                return await self._runs.start(request)
            except ThreadAtOtherNode as error:
                node = error.node
            if node in self._calls.others:
                with suppress(ThreadAtOtherNode):
                    return await self._start_at(node, request)
            else:
                await self._runs.abandoned_runs.take_of(request.thread_id or "", "")
            await anyio.sleep(MOVE_S)
        raise StoreUnavailable("The runs of this thread keep moving between nodes; try again.")

    async def _start_at(self, node: int, request: GraphRunRequest) -> LocalRun:
        given = {
            "request": encode_start(request),
            "traceparent": TRACEPARENT.get(),
            "work_group": WORK_GROUP.get(),
        }
        started = await self._ask(node, START, given)
        copy = await self.copies.copied(node, started["run"])
        copy.row = replace(Run(**started["row"]), status=copy.row.status)
        return copy

    async def _start_here(self, asked: Json) -> Json:
        TRACEPARENT.set(asked["traceparent"])
        WORK_GROUP.set(asked["work_group"])
        live = await self._runs.start(decode_start(asked["request"]))
        return {"run": describe(live), "row": asdict(live.row)}

    async def cancel(self, thread_id: str, run_id: str, action: CancelAction = "interrupt") -> None:
        """Cancel an active run.

        Raises:
            RowNotFound: It is unknown or has ended.
            StoreUnavailable: It is moving to another node, or its node does not respond. It may have been canceled.
        """
        if self._runs.find(thread_id, run_id) is None:
            node, is_over = await self._runs.abandoned_runs.find_node(thread_id, run_id)
            if node is not None and node != self._calls.node and not is_over:
                await self._cancel_at(node, thread_id, run_id, action)
                return
        await self._runs.cancel(thread_id, run_id, action)

    async def _cancel_at(
        self, node: int, thread_id: str, run_id: str, action: CancelAction
    ) -> None:
        await self._ask(node, CANCEL, {"thread_id": thread_id, "run_id": run_id, "action": action})

    async def _cancel_here(self, asked: Json) -> Json:
        await self._runs.cancel(asked["thread_id"], asked["run_id"], asked["action"])
        return {}

    async def cancel_many(
        self, *, status: str | None, thread_id: str, run_ids: Sequence[str], action: CancelAction
    ) -> None:
        """Cancel active runs at all nodes. Arguments: as in `RunManager.select`.

        Raises:
            RowNotFound: The nodes that responded have no such runs.
        """
        given = {"status": status, "thread_id": thread_id, "run_ids": run_ids, "action": action}
        canceled = (await self._cancel_many_here(given))["runs"]
        answers = await self._calls.call_others(CANCEL_MANY, dumps(given).decode())
        canceled += sum(orjson.loads(one)["answer"]["runs"] for one in answers.values() if one)
        if not canceled:
            raise RowNotFound("No runs found to cancel.")

    async def _cancel_many_here(self, asked: Json) -> Json:
        found = self._runs.select(
            status=asked["status"], thread_id=asked["thread_id"], run_ids=asked["run_ids"]
        )
        await self._runs.cancel_all(found, asked["action"])
        return {"runs": len(found)}

    async def inject(self, thread_id: str, run_id: str | None, messages: object) -> str | None:
        """Pass messages to an active run. As in `RunManager.inject`."""
        taken_by = await self._runs.inject(thread_id, run_id, messages)
        if taken_by is not None or self._runs.active_on_thread(thread_id):
            return taken_by
        node, _ = await self._runs.abandoned_runs.find_node(thread_id)
        if node is None or node == self._calls.node:
            return await self._runs.inject(thread_id, run_id, messages)
        given = {"thread_id": thread_id, "run_id": run_id, "messages": messages}
        answer: str | None = (await self._ask(node, INJECT, given))["run_id"]
        return answer

    async def _inject_here(self, asked: Json) -> Json:
        given = asked["thread_id"], asked["run_id"], asked["messages"]
        return {"run_id": await self._runs.inject(*given)}

    def _cancel_soon(self, copy: CopiedRun, action: CancelAction) -> None:
        self._tasks.start_soon(self._cancel_copied, copy, action)

    async def _cancel_copied(self, copy: CopiedRun, action: CancelAction) -> None:
        try:
            if copy.node in self._calls.others:
                await self._cancel_at(copy.node, copy.thread_id, copy.run_id, action)
            else:
                await self.cancel(copy.thread_id, copy.run_id, action)
        except (RowNotFound, StoreError) as error:
            log.warning("Run %s is not canceled: %s", copy.run_id, error)

    async def _hand_over(self, _body: str) -> str:
        hand_over(self._runs.active)
        return ""

    def _serve(self, method: str, handler: Handler) -> None:
        """Respond to calls of `_ask`."""

        async def answer(body: str) -> str:
            try:
                answered = {"answer": await handler(orjson.loads(body))}
            except _REFUSALS as error:
                refusal = {"kind": type(error).__name__, "text": str(error), "details": vars(error)}
                answered = {"refusal": refusal}
            return dumps(answered).decode()

        self._calls.serve(method, answer)

    async def _ask(self, node: int, method: str, given: Json) -> Json:
        """Return the response of a node.

        Raises StoreUnavailable, and the error with which the node refuses the call.
        """
        body = dumps(given).decode()
        answered = orjson.loads(await self._calls.call(node, method, body, within_s=CALL_S))
        if refusal := answered.get("refusal"):
            if refusal["kind"] == ThreadAtOtherNode.__name__:
                raise ThreadAtOtherNode(**refusal["details"])
            raise _KINDS[refusal["kind"]](refusal["text"], **refusal["details"])
        answer: Json = answered["answer"]
        return answer


@asynccontextmanager
async def open_cluster_runs(runs: RunManager, calls: NodeCalls) -> AsyncIterator[ClusterRuns]:
    """Yield the runs of all nodes, and serve those of this node to the others, until the block ends."""
    async with anyio.create_task_group() as tasks:
        cluster = ClusterRuns(runs, calls, tasks)
        runs.watchers.other_nodes = cluster.copies
        tasks.start_soon(cluster.writer.run)
        tasks.start_soon(cluster.copies.run)
        yield cluster
        runs.watchers.other_nodes = NoOtherNodes()
        tasks.cancel_scope.cancel()
