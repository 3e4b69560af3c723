"""AbandonedRuns: failover of runs whose processes ended before them."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NoReturn

import anyio
from langchain_core.messages import AnyMessage

from gateway.runtime.errors import InvalidRequest
from gateway.runtime.lifecycle import CancelAction, RunFailure, is_final
from gateway.runtime.local_run import LocalRun
from gateway.runtime.serialization import dumps
from store.errors import StoreError, StoreUnavailable
from store.nodes import Node, Nodes, preferred_node
from store.run_requests import AbandonedRun
from store.runs import RunOutcome, RunStore

POLL_S = 0.1
ATTEMPTS = 60
"""How often to look for the node that executes a run while that node ends or joins, seconds."""

RETRY_S = 0.5
"""Pause after the database could not be used, seconds."""

log = logging.getLogger(__name__)


class AbandonedRuns:
    """Takes the runs of dead processes, and the runs that nodes hand over when they stop.

    Runs whose requests are stored continue here. The others become `interrupted`, and their clients start them again.

    Args:
        rows: The runs' rows.
        nodes: The processes that share the database.
        now: Returns the time, Unix seconds.
        start_again: Starts a run again, or raises InvalidRequest. Called in the order in which the runs of a thread
            were created.
        write_s: Time limit of a write, seconds.
    """

    def __init__(
        self,
        rows: RunStore,
        nodes: Nodes,
        now: Callable[[], float],
        start_again: Callable[[AbandonedRun], None],
        *,
        write_s: float,
    ) -> None:
        self._rows = rows
        self._nodes = nodes
        self._now = now
        self._start_again = start_again
        self._write_s = write_s
        self._seen: Sequence[Node] = ()

    async def take(self) -> None:
        """Take abandoned runs on the threads that this node owns. Raises StoreUnavailable."""
        self._seen = self._nodes.living
        names = await self._rows.requests.list_abandoned()
        await self._take(
            name
            for name in names
            if preferred_node(self._nodes.living, name, otherwise=self._nodes.number)
            == self._nodes.number
        )

    async def take_of(self, thread_id: str, run_id: str) -> None:
        """Take abandoned runs on a thread or on a run's thread, whichever node owns it.

        Raises StoreUnavailable.
        """
        await self._take(await self._rows.requests.find_abandoned(thread_id, run_id))

    async def find_node(self, thread_id: str, run_id: str = "") -> tuple[int | None, bool]:
        """Find the living node that has a run, or a thread's runs. The runs of an ended node fail over to this one.

        Args:
            thread_id: The thread. "" = the run's thread, which is unknown.
            run_id: The run. "" = all unfinished runs of the thread.

        Returns:
            The node (None = no living node is known), and whether the run has ended.

        Raises:
            StoreUnavailable: The database cannot be used, or the node of the run was lost and no other node has the run
                yet.
        """
        for attempt in range(ATTEMPTS):
            if attempt:
                await anyio.sleep(POLL_S)
            found = await self._look_up(thread_id, run_id)
            if found is None:
                return None, True
            node, is_over = found
            if node in {one.number for one in self._nodes.living}:
                return node, is_over
            if is_over:
                return None, True
            # The node has ended, is handing its runs over, or has just joined.
            await self.take_of(thread_id, run_id)
        raise StoreUnavailable("The node that executes the run does not respond; try again.")

    async def _look_up(self, thread_id: str, run_id: str) -> tuple[int, bool] | None:
        if run_id:
            found = await self._rows.find_run_node(run_id)
            return None if found is None else (found[0], is_final(found[1]))
        node = await self._rows.find_thread_node(thread_id)
        return None if node is None else (node, False)

    async def hand_over(self, active: Iterable[LocalRun]) -> None:
        """Hand runs over to other nodes. If that fails, the runs fail over when this node has ended."""
        run_ids = [live.run_id for live in active if live.is_handed_over]
        try:
            if run_ids:
                await self._rows.requests.hand_over(run_ids)
        except StoreError as error:
            log.warning("%d run(s) could not be handed over: %s", len(run_ids), error)

    async def store_cancel(self, runs: Iterable[LocalRun], action: CancelAction) -> None:
        """Store a cancellation, so that the node that continues one of the runs cancels it.

        While the database cannot be written, the runs are canceled only at this node.
        """
        run_ids = [live.run_id for live in runs if live.restartable]
        if not run_ids:
            return
        try:
            with anyio.fail_after(self._write_s):
                await self._rows.requests.cancel(run_ids, action)
        except (StoreError, TimeoutError) as error:
            log.warning("The cancellation of %d run(s) is not stored: %s", len(run_ids), error)

    async def store_messages(self, live: LocalRun, messages: Iterable[AnyMessage]) -> None:
        """Store messages, so that the node that continues a run passes them to it. Raises StoreUnavailable."""
        if not live.restartable:
            return
        lines = b"".join(dumps(message) + b"\n" for message in messages).decode()
        with anyio.move_on_after(self._write_s):
            await self._rows.requests.add_messages(live.run_id, lines)
            return
        raise StoreUnavailable("The database did not store the messages in time.")

    async def watch(self) -> None:
        """Take the runs of other nodes as soon as these have ended."""
        await on_each_change(self._nodes, self._seen, self.take)

    async def _take(self, names: Iterable[str]) -> None:
        lost = await self._rows.interrupt_lost(now=self._now())
        if lost:
            log.warning("%d run(s) were interrupted when their process ended.", lost)
        for name in names:
            # Shielded, so that all runs that were taken are started.
            with anyio.CancelScope(shield=True):
                await self._start_all(await self._rows.requests.take(name))

    async def _start_all(self, taken: Iterable[AbandonedRun]) -> None:
        unreadable: list[tuple[AbandonedRun, InvalidRequest]] = []
        for abandoned in taken:
            try:
                self._start_again(abandoned)
            except InvalidRequest as error:
                unreadable.append((abandoned, error))
            else:
                log.warning(
                    "Run %s continues here, attempt %d.", abandoned.run_id, abandoned.attempt
                )
        for abandoned, problem in unreadable:
            await self._give_up(abandoned, problem)

    async def _give_up(self, abandoned: AbandonedRun, error: InvalidRequest) -> None:
        """Record that a run does not continue.

        Raises StoreUnavailable. In that case, another process tries again after this one has ended.
        """
        log.error("Run %s cannot be started again: %s", abandoned.run_id, error)
        outcome = RunOutcome(
            run_id=abandoned.run_id,
            thread_id=abandoned.thread_id or abandoned.run_id,
            status="error",
            thread_status="error",
            error=RunFailure(error="InvalidRequest", message=str(error)).as_dict(),
            has_request=True,
        )
        await self._rows.finish(outcome, now=self._now())


async def on_each_change(
    nodes: Nodes, seen: Sequence[Node], work: Callable[[], Awaitable[None]]
) -> NoReturn:
    """Call `work` whenever the living nodes differ from the `seen` ones, and again after the database failed."""
    has_failed = False
    while True:
        if not has_failed and nodes.living == seen:
            await nodes.wait_change()
        seen, has_failed = nodes.living, False
        try:
            await work()
        except StoreUnavailable:
            has_failed = True
            await anyio.sleep(RETRY_S)
