"""Elsewhere: runs of all nodes, for the routes of any node. Those of other nodes are read and changed from here."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import orjson
from anyio.abc import TaskGroup

from gateway.runtime.errors import RunRequestError
from gateway.runtime.lifecycle import CancelAction
from gateway.runtime.live_run import LiveRun
from gateway.runtime.run_copies import RunCopies
from gateway.runtime.runs import RunManager
from gateway.runtime.serialization import dumps
from gateway.runtime.shared_events import EventWriter
from gateway.runtime.stopping import hand_over
from store.errors import RowNotFound, StoreError
from store.node_calls import HAND_OVER, NodeCalls
from store.run_events import RunEventStore

CANCEL = "runs.cancel"
"""The calls to the node that executes a run."""

Json = dict[str, Any]
Handler = Callable[[Json], Awaitable[Json]]

_REFUSALS = (RunRequestError, RowNotFound)
_KINDS = {RowNotFound.__name__: RowNotFound}
"""What a node may refuse a call with; its caller raises it again."""

log = logging.getLogger(__name__)


class Elsewhere:
    """Runs of all nodes: of this one, where they are here, and else of the node that executes them.

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
        self._serve(CANCEL, self._cancel_here)
        calls.serve(HAND_OVER, self._hand_over)

    async def find(self, run_id: str, *, thread_id: str = "") -> LiveRun | None:
        """Return a run whose events a node has in memory. As of `RunCopies.find`."""
        return await self.copies.find(run_id, thread_id=thread_id)

    async def cancel(self, thread_id: str, run_id: str, action: CancelAction = "interrupt") -> None:
        """Cancel an active run.

        Raises:
            RowNotFound: It is unknown or has ended.
            StoreUnavailable: It is about to go on at another node, or its node does not answer: perhaps it is canceled.
        """
        if self._calls.others and self._runs.find(thread_id, run_id) is None:
            node, is_over = await self._runs.left_runs.find_node(thread_id, run_id)
            if node is not None and node != self._calls.node and not is_over:
                given = {"thread_id": thread_id, "run_id": run_id, "action": action}
                await self._ask(node, CANCEL, given)
                return
        await self._runs.cancel(thread_id, run_id, action)

    async def _cancel_here(self, asked: Json) -> Json:
        await self._runs.cancel(asked["thread_id"], asked["run_id"], asked["action"])
        return {}

    def _cancel_soon(self, live: LiveRun, action: CancelAction) -> None:
        self._tasks.start_soon(self._cancel_quietly, live, action)

    async def _cancel_quietly(self, live: LiveRun, action: CancelAction) -> None:
        try:
            await self.cancel(live.thread_id, live.run_id, action)
        except (RowNotFound, StoreError) as error:
            log.warning("Run %s is not canceled: %s", live.run_id, error)

    async def _hand_over(self, _body: str) -> str:
        hand_over(self._runs.active)
        return ""

    def _serve(self, method: str, handler: Handler) -> None:
        """Answer calls of `_ask`."""

        async def answer(body: str) -> str:
            try:
                answered = {"answer": await handler(orjson.loads(body))}
            except _REFUSALS as error:
                refusal = {"kind": type(error).__name__, "text": str(error), "details": vars(error)}
                answered = {"refusal": refusal}
            return dumps(answered).decode()

        self._calls.serve(method, answer)

    async def _ask(self, node: int, method: str, given: Json) -> Json:
        """Return the answer of a node. Raises StoreUnavailable, and what the node refuses it with."""
        answered = orjson.loads(await self._calls.call(node, method, dumps(given).decode()))
        if refusal := answered.get("refusal"):
            raise _KINDS[refusal["kind"]](refusal["text"], **refusal["details"])
        answer: Json = answered["answer"]
        return answer


@asynccontextmanager
async def open_elsewhere(runs: RunManager, calls: NodeCalls) -> AsyncIterator[Elsewhere]:
    """Yield the runs of all nodes, and serve those of this node to the others, until the block ends."""
    async with anyio.create_task_group() as tasks:
        elsewhere = Elsewhere(runs, calls, tasks)
        if calls.node:
            runs.subscribers.elsewhere = elsewhere.copies
            for work in (elsewhere.writer.run, elsewhere.copies.run, elsewhere.copies.sweep):
                tasks.start_soon(work)
        yield elsewhere
        runs.subscribers.elsewhere = None
        tasks.cancel_scope.cancel()
