"""Failover: takes the chats of stopped nodes, and finds forgotten work in this node's own chats.

Signals make this fast. Periodic searches find work whose signals were lost.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress

import anyio

from bus.context import BusContext
from bus.conversation.conversations import Conversations
from bus.inbound.dispatcher import InboundDispatcher
from bus.messages import ConversationKey
from store.chat_owners import EVERYTHING, MAX_CLAIMS, WorkMark, parse_signal
from store.errors import StoreError, StoreUnavailable
from store.node_calls import HAND_OVER

log = logging.getLogger(__name__)

SEARCHES_OF_OWN = 4
"""This node's own chats are searched only in every n-th search."""

SEARCHES_OF_ALL = 20
"""Every n-th search covers all rows. The others cover only rows that are newer than the last full search."""

MAX_STRAYS = 100
"""Maximum number of idle chats to give to a new node in one search of this node's own chats."""

PATIENCE = 3
"""Number of searches after which a node takes another node's chat, because that node may not run its channel."""


class ChatFailover:
    """Finds work that no node is doing.

    Args:
        bus: The bus.
        dispatcher: Dispatches the messages that are found.
    """

    def __init__(self, bus: BusContext, dispatcher: InboundDispatcher) -> None:
        self._owners = bus.stores.owners
        self._delivery = bus.delivery
        self._channels = bus.adapters.keys()
        self._dispatcher = dispatcher
        self._calls, self._nodes = bus.calls, bus.nodes
        self._seen: dict[ConversationKey, int] = {}
        self._numbers = {node.number for node in bus.nodes.living}
        self._ready: set[int] = set()
        self._hears = False
        self._searches = 0
        self._mark = EVERYTHING
        self._strays: list[ConversationKey] = []
        self._leaves = False

    async def run(self) -> None:
        """Search until canceled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen)
            known = self._nodes.living
            while True:
                with anyio.move_on_after(self._owners.search_s):
                    if self._nodes.living == known:
                        await self._nodes.wait_change()
                known = self._nodes.living
                if not self._leaves:
                    await self._try_search()

    async def hand_over(self, conversations: Conversations) -> None:
        """Ask the other nodes, if there are any, to give this one no more work and to continue its runs."""
        self._leaves = True
        if not self._calls.others:
            return
        conversations.hand_over()
        with suppress(StoreError):  # `leave` repeats this call.
            await self._nodes.leave()
        # This call fails if the agent's server is a separate process. Its runs then continue, and other nodes follow
        # them.
        with suppress(StoreUnavailable):
            await self._calls.call(self._calls.node, HAND_OVER, "")

    async def leave(self) -> None:
        """Give idle chats to other nodes, now and whenever further chats become idle, until canceled.

        Call it only after this node has stopped accepting messages. Returns at once if there is no other node.
        """
        self._leaves = True
        if not self._calls.others:
            return
        while True:
            try:
                await self._nodes.leave()
                while True:
                    await self._owners.give_up_idle()
                    await anyio.sleep(self._owners.search_s)
            except StoreError as error:
                log.debug("chats could not be given up yet: %s", error)
                await anyio.sleep(self._owners.search_s)

    async def search(self) -> int:
        """Take chats without an owner, and find forgotten work. Return the number of chats taken.

        Raises:
            StoreError: The journal cannot be used.
        """
        number, self._searches = self._searches, self._searches + 1
        numbers = {node.number for node in self._nodes.living}
        is_whole = number % SEARCHES_OF_ALL == 0
        newest = await self._owners.find_mark() if is_whole else self._mark
        # If nodes come or go, or leave chats to this one, chats of any age may need a new owner.
        looks_at_all = is_whole or bool(self._seen) or numbers != self._numbers
        mark = EVERYTHING if looks_at_all else self._mark
        taken = await self._take_orphans(mark)
        if not self._numbers <= numbers:
            # The stopped node may not have shown its last indicators.
            await self._delivery.repeat_indicators()
        self._numbers = numbers
        ready = {node.number for node in self._nodes.living if node.takes_work}
        if ready != self._ready:
            self._strays = self._owners.list_strays()
        self._ready = ready
        if taken:
            await self._delivery.send_own()
        if number % SEARCHES_OF_OWN == 0:
            await self._search_own(mark)
        self._mark = newest
        return len(taken)

    async def _try_search(self) -> None:
        try:
            if self._hears and self._nodes.number not in self._ready:
                await self._nodes.mark_ready()
            if taken := await self.search():
                log.info("failover of %s chats that no node worked on", taken)
        except StoreError as error:
            log.debug("the search for chats without a node waits for the journal: %s", error)
        except Exception:
            log.exception("the search for chats without a node failed and will be repeated")

    async def _listen(self) -> None:
        """Act on signals of other nodes until the database is closed."""
        with self._owners.listen() as payloads:
            # This signal comes back as an empty payload once this node receives signals. Until then, others must not
            # give it work.
            self._owners.signal_gap()
            async for payload in payloads:
                if not payload:
                    self._hears = True
                    self._searches = 0  # The next search is a full one.
                    continue
                try:
                    key, is_delivery = parse_signal(payload)
                except (ValueError, TypeError):
                    log.warning("a signal of another node cannot be read: %.200r", payload)
                    continue
                if is_delivery:
                    self._delivery.notify(key, are_new=False)
                else:
                    self._dispatcher.resume_chat_soon(key)

    async def _take_orphans(self, mark: WorkMark) -> set[ConversationKey]:
        found = await self._owners.list_orphans(mark)
        orphans = [chat for chat in found if chat.channel in self._channels]
        self._seen = {chat: self._seen.get(chat, 0) + 1 for chat in orphans}
        wanted = [
            chat for chat in orphans if self._owners.prefers(chat) or self._seen[chat] > PATIENCE
        ]
        taken: set[ConversationKey] = set()
        for start in range(0, len(wanted), MAX_CLAIMS):
            claimed = await self._owners.take(wanted[start : start + MAX_CLAIMS])
            self._resume(claimed)
            taken.update(claimed)
        return taken

    def _resume(self, chats: Iterable[ConversationKey]) -> None:
        for chat in chats:
            if chat.channel in self._channels:
                self._dispatcher.resume_chat_soon(chat)

    async def _search_own(self, mark: WorkMark) -> None:
        """Find work in this node's chats that a lost signal or a disk failure after a commit has left behind."""
        forgotten = await self._dispatcher.find_forgotten(mark)
        self._resume(forgotten)
        chats = forgotten | await self._delivery.send_own(mark.outbox_id)
        batch, self._strays = self._strays[:MAX_STRAYS], self._strays[MAX_STRAYS:]
        await self._owners.give_up_strays(batch)
        if foreign := [chat for chat in chats if chat.channel not in self._channels]:
            # The nodes' configurations differ. A node that runs the channel will take these chats.
            await self._owners.give_up(foreign)
