"""/undo and /retry: the last exchange of a conversation, taken back or run anew."""

import logging
from dataclasses import replace

import anyio

from bus.commands.context import CommandContext
from bus.conversation.worker import ConversationWorker
from bus.conversation.workers import ConversationWorkers
from bus.errors import AgentThreadBusy, AgentThreadNotFound, RewindUnsupported, RunError
from bus.history.rewind import ThreadRewinder
from bus.history.turn_history import TurnHistory
from bus.history.user_messages import last_rewind_point, preview
from bus.locales import Messages
from bus.messages import RewindPoint, encode_inbound
from bus.runs.client import RunClient
from store.conversations import ConversationStore
from store.inbox import InboxStore

log = logging.getLogger(__name__)

TIMEOUT_S = 30.0
"""How long the agent's server may take."""


class RewindCommands:
    """Commands about what was said last.

    Which exchange that is, is noted in the command's row before anything is changed: however often the row
    is taken up, only that one is taken back.
    """

    def __init__(
        self,
        *,
        inbox: InboxStore,
        conversations: ConversationStore,
        runs: RunClient,
        mailboxes: ConversationWorkers,
        originals: TurnHistory,
    ) -> None:
        self._inbox = inbox
        self._conversations = conversations
        self._runs = runs
        self._rewind = ThreadRewinder(runs)
        self._mailboxes = mailboxes
        self._originals = originals

    async def undo(self, call: CommandContext) -> str:
        """Take the last exchange out of the thread."""
        with self._mailboxes.reserve(call.row) as box:
            if box is None:
                return call.texts.exchange_busy
            try:
                with anyio.fail_after(TIMEOUT_S):
                    exchange = await self._noted(call, box)
                    if exchange is None:
                        return call.texts.undo_nothing
                    await self._rewind.rewind(exchange.thread_id, exchange.message_id)
            except (RunError, TimeoutError) as error:
                return _refusal(error, call.texts, call.texts.undo_nothing)
        return call.texts.undo_done.format(words=preview(exchange.text))

    async def retry(self, call: CommandContext) -> str | None:
        """Run the last message anew, in place of what it brought; the turn answers."""
        with self._mailboxes.reserve(call.row) as box:
            if box is None:
                return call.texts.exchange_busy
            try:
                with anyio.fail_after(TIMEOUT_S):
                    exchange = await self._noted(call, box)
            except (RunError, TimeoutError) as error:
                return _refusal(error, call.texts, call.texts.retry_nothing)
            if exchange is None:
                return call.texts.retry_nothing
            inbound = replace(call.inbound, rewind_point=exchange)
            self._mailboxes.enqueue_first(box, call.row, inbound, exchange.text)
        return None

    async def _noted(self, call: CommandContext, box: ConversationWorker) -> RewindPoint | None:
        """Return what the command is about, noted in its row. Raises RunError, StoreError."""
        if call.inbound.rewind_point is not None:
            return call.inbound.rewind_point
        found = await self._conversations.find(call.row.key)
        thread_id = box.thread_id or (found.thread_id if found is not None else None)
        if thread_id is None:
            return None
        exchange = last_rewind_point(thread_id, await self._runs.get_messages(thread_id))
        if exchange is not None:
            exchange = await self._originals.apply_edit(call.row.conversation_id, exchange)
            noted = replace(call.inbound, rewind_point=exchange)
            await self._inbox.update_body(call.row.id, encode_inbound(noted))
        return exchange


def _refusal(error: RunError | TimeoutError, texts: Messages, nothing: str) -> str:
    log.warning("an exchange could not be taken back: %r", error)
    match error:
        case AgentThreadBusy():
            return texts.exchange_busy
        case AgentThreadNotFound():
            return nothing
        case RewindUnsupported():
            return texts.exchange_refused
        case _:
            return texts.exchange_unreachable
