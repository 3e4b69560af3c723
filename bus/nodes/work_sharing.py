"""Gives chats whose turns wait for a run slot to a node that has free ones.

Chats are divided by their names, not by what is said in them: the turns of one node may wait while another one has
nothing to do.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from bus.context import BusContext
from bus.conversation.run_slots import RunSlots
from bus.conversation.worker import ConversationWorker
from bus.conversation.workers import ConversationWorkers
from bus.inbound.dispatcher import InboundDispatcher
from bus.messages import ConversationKey, chat_of
from store.errors import StoreError

log = logging.getLogger(__name__)

FREE_SLOTS = "bus.free_slots"
"""The call that asks a node how many more agents it may run now."""

CHECK_S = 0.5
"""How often it is checked whether turns wait, seconds."""

PATIENCE_S = 1.0
"""How long a turn waits for a slot of its own node, seconds: to move it costs both nodes some milliseconds."""

MAX_STARTS = 3
"""Starts of a turn after which it is not moved any more: each move is another one, and their number is limited."""


class WorkSharing:
    """Moves chats from this node, if its turns wait, to nodes that have free run slots.

    Args:
        bus: The bus.
        slots: The run slots of this node.
        workers: Work on the chats.
        dispatcher: Resumes a chat that was not moved after all.
    """

    def __init__(
        self,
        bus: BusContext,
        *,
        slots: RunSlots,
        workers: ConversationWorkers,
        dispatcher: InboundDispatcher,
    ) -> None:
        self._owners, self._calls, self._nodes = bus.stores.owners, bus.calls, bus.nodes
        self._slots = slots
        self._workers = workers
        self._dispatcher = dispatcher
        self._calls.serve(FREE_SLOTS, self._count_free)

    async def run(self) -> None:
        """Move chats until cancelled."""
        while True:
            await anyio.sleep(CHECK_S)
            if not self._workers.is_closed:
                await self.share()

    async def share(self) -> int:
        """Move chats that wait, those that have waited longest first; return how many were moved."""
        moved = 0
        for node in self._nodes.living:
            waiting = list_waiting(self._workers.active)
            if not waiting:
                break
            if node.takes_work and node.number != self._nodes.number:
                moved += await self._share_with(node.number, waiting)
        if moved:
            log.info("%s chats that waited for a run slot go to other nodes", moved)
        return moved

    async def _share_with(self, node: int, waiting: Sequence["WaitingChat"]) -> int:
        try:
            free = int(await self._calls.call(node, FREE_SLOTS, ""))
            return sum([await self._move(chat, node) for chat in waiting[:free]])
        except (StoreError, ValueError) as error:
            log.debug("no chats go to node %s: %s", node, error)
            return 0

    async def _move(self, waiting: "WaitingChat", node: int) -> bool:
        """Give a chat to a node unless something happened in it meanwhile. Raises StoreError."""
        chat = waiting.key
        if waiting not in list_waiting(self._workers.active):
            return False
        with self._dispatcher.suspend(chat):
            await self._workers.withdraw(waiting.workers)
            is_given = await self._owners.give(chat, node, row_ids=waiting.row_ids)
        if is_given:
            self._owners.signal(node, chat)
        return is_given

    async def _count_free(self, _: str) -> str:
        return str(0 if self._workers.is_closed else self._slots.free)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingChat:
    """A chat in which turns wait for run slots, and nothing else goes on.

    Attributes:
        key: The chat.
        since: When the first turn began to wait, by anyio's clock.
        workers: Those of its conversations.
        row_ids: The messages that wait.
    """

    key: ConversationKey
    since: float
    workers: tuple[ConversationWorker, ...]
    row_ids: frozenset[int]


def list_waiting(workers: Sequence[ConversationWorker]) -> list[WaitingChat]:
    """Return the chats whose turns have all waited too long, those that have waited longest first."""
    chats: dict[ConversationKey, list[ConversationWorker]] = {}
    for worker in workers:
        chats.setdefault(chat_of(worker.key), []).append(worker)
    latest = anyio.current_time() - PATIENCE_S
    found: list[WaitingChat] = []
    for key, theirs in chats.items():
        since = [_waits_since(worker) for worker in theirs]
        times = [time for time in since if time is not None]
        if len(times) == len(since) and min(times) <= latest:
            row_ids = frozenset(row_id for worker in theirs for row_id in worker.row_ids)
            found.append(
                WaitingChat(key=key, since=min(times), workers=tuple(theirs), row_ids=row_ids)
            )
    return sorted(found, key=lambda chat: chat.since)


def _waits_since(worker: ConversationWorker) -> float | None:
    """Return since when a worker's turn waits for a slot; None = it does not, or is not to be moved."""
    turn = worker.turn
    if turn is None or turn.waits_since is None or turn.reason is not None:
        return None
    may_have_run = turn.attempt.run_id is not None or turn.attempt.is_requested
    return None if may_have_run or turn.row.attempts >= MAX_STARTS else turn.waits_since
