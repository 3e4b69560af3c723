"""/undo and /retry: remove the last message and its answer, or answer it again."""

import logging
from dataclasses import replace

import anyio

from bus.commands.context import CommandContext
from bus.context import BusContext
from bus.conversation.conversations import Conversations
from bus.conversation.queue import ConversationQueue
from bus.errors import AgentThreadBusy, AgentThreadNotFound, RewindUnsupported, RunError
from bus.history.turn_history import apply_edit
from bus.history.user_messages import last_rewind_point, preview
from bus.locales import Messages
from bus.messages import RewindPoint, encode_inbound
from bus.runs.stream import messages_in

log = logging.getLogger(__name__)

TIMEOUT_S = 30.0
"""Timeout of a request to the agent's server, seconds."""


class RewindCommands:
    """Commands about the last message and its answer.

    The command stores the message in its own row before it changes anything, so a resumed command never removes a
    different message.
    """

    def __init__(self, bus: BusContext, conversations: Conversations) -> None:
        self._stores = bus.stores
        self._runs = bus.runs
        self._conversations = conversations

    async def undo(self, context: CommandContext) -> str:
        """Remove the last message and its answer from the thread."""
        with self._conversations.reserve(context.row) as queue:
            if queue is None:
                return context.texts.rewind_busy
            try:
                with anyio.fail_after(TIMEOUT_S):
                    point = await self._rewind_point(context, queue)
                    if point is None:
                        return context.texts.undo_nothing
                    await self._runs.rewind(point.thread_id, point.message_id)
            except (RunError, TimeoutError) as error:
                return _refusal(error, context.texts, context.texts.undo_nothing)
        return context.texts.undo_done.format(words=preview(point.text))

    async def retry(self, context: CommandContext) -> str | None:
        """Run the last message again and replace its answer. The started turn answers."""
        with self._conversations.reserve(context.row) as queue:
            if queue is None:
                return context.texts.rewind_busy
            try:
                with anyio.fail_after(TIMEOUT_S):
                    point = await self._rewind_point(context, queue)
            except (RunError, TimeoutError) as error:
                return _refusal(error, context.texts, context.texts.retry_nothing)
            if point is None:
                return context.texts.retry_nothing
            inbound = replace(context.inbound, rewind_point=point)
            self._conversations.enqueue_first(queue, context.row, inbound, point.text)
        return None

    async def _rewind_point(
        self, context: CommandContext, queue: ConversationQueue
    ) -> RewindPoint | None:
        """Return the message that the command concerns, as stored in its row. Raises RunError, StoreError."""
        if context.inbound.rewind_point is not None:
            return context.inbound.rewind_point
        found = await self._stores.conversations.find(context.row.key)
        thread_id = queue.thread_id or (found.thread_id if found is not None else None)
        if thread_id is None:
            return None
        point = last_rewind_point(thread_id, messages_in(await self._runs.get_state(thread_id)))
        if point is not None:
            point = await apply_edit(self._stores.history, context.row, point)
            stored = replace(context.inbound, rewind_point=point)
            await self._stores.inbox.update_body(context.row.id, encode_inbound(stored))
        return point


def _refusal(error: RunError | TimeoutError, texts: Messages, nothing: str) -> str:
    log.warning("the last message could not be removed from its thread: %r", error)
    match error:
        case AgentThreadBusy():
            return texts.rewind_busy
        case AgentThreadNotFound():
            return nothing
        case RewindUnsupported():
            return texts.rewind_refused
        case _:
            return texts.rewind_unreachable
