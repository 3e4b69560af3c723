"""Dispatcher: runs an accepted command at once, or queues an accepted message in its conversation."""

import logging
from dataclasses import replace

from bus.commands import ParsedCommand, recognize_command
from bus.commands.runner import CommandRunner
from bus.context import BusContext
from bus.conversation.conversations import Conversations
from bus.errors import is_repeatable, unwrapped
from bus.inbound.chat_migrations import HeldRows
from bus.inbound.gesture_collector import GestureCollector
from bus.log_context import bind_conversation
from bus.messages import (
    ConversationKey,
    InboundMessage,
    chat_of,
    decode_inbound,
    decode_reply_target,
)
from store.chat_owners import EVERYTHING, WorkMark
from store.errors import StoreError
from store.inbox import InboxRow

log = logging.getLogger(__name__)


class InboundDispatcher:
    """Dispatches accepted messages without waiting, and resumes unfinished work of earlier processes and other nodes.

    Rows of a disabled channel wait until it is enabled again.

    Attributes:
        held_rows: The rows that this node and other nodes are working on.
    """

    def __init__(
        self,
        bus: BusContext,
        *,
        commands: CommandRunner,
        conversations: Conversations,
        gestures: GestureCollector,
    ) -> None:
        self._tasks = bus.tasks
        self._tracer, self._now = bus.tracer, bus.now
        self._inbox = bus.stores.inbox
        self._owners = bus.stores.owners
        self.held_rows = HeldRows(bus.calls, self._held)
        self._commands = commands
        self._conversations = conversations
        self._gestures = gestures
        self._channels = bus.adapters.keys()
        self._running: set[int] = set()
        self._resuming: dict[ConversationKey, bool] = {}
        self._is_closed = False

    def close(self) -> None:
        """Dispatch no further messages. They wait in the journal for the next process."""
        self._is_closed = True

    def dispatch_accepted(
        self, row: InboxRow, inbound: InboundMessage, command: ParsedCommand | None
    ) -> None:
        """Dispatch a message that was just accepted, or signal its chat's owner. Returns at once."""
        if row.owner != self._owners.number:
            self._owners.signal(row.owner, row.key)
        elif self._is_closed:
            log.info("message %d waits for the next process", row.id)
        elif row.earlier_ids and not row.earlier_ids <= self._held():
            # Another node accepted a message before this one, and its signal has not arrived yet.
            self.resume_chat_soon(row.key)
        else:
            self.dispatch(row, inbound, command)

    def dispatch(
        self,
        row: InboxRow,
        inbound: InboundMessage,
        command: ParsedCommand | None = None,
        *,
        former_thread: str | None = None,
    ) -> None:
        """Dispatch one accepted message. Returns at once.

        Args:
            row: Its row.
            inbound: The message.
            command: The command of a message that this process just accepted. A message from the journal is parsed
                again.
            former_thread: The row's thread, if its conversation now has a different one.
        """
        if row.kind == "command":
            command = command or recognize_command(inbound.text)
            self._gestures.close(inbound)
            self._running.add(row.id)
            self._tasks.start_soon(self._command, row, inbound, command)
        else:
            self._gestures.dispatch(row, inbound, former_thread=former_thread)

    def resume_chat_soon(self, key: ConversationKey) -> None:
        """Dispatch a chat's unfinished rows that no worker of this node has, if this node owns the chat.

        Returns at once.
        """
        chat = chat_of(key)
        if chat not in self._resuming:
            self._tasks.start_soon(self._resume_chat, chat)
        self._resuming[chat] = True

    async def find_forgotten(self, mark: WorkMark = EVERYTHING) -> set[ConversationKey]:
        """Return this node's chats with rows that no worker has because a signal was lost. Raises StoreError."""
        busy = self._held()
        rows = await self._inbox.list_open_own(mark)
        now_busy = self._held()
        return {chat for row_id, chat in rows if row_id not in busy and row_id not in now_busy}

    async def _resume_chat(self, chat: ConversationKey) -> None:
        try:
            while self._resuming[chat]:
                self._resuming[chat] = False
                await self._resume_own(chat)
        except StoreError as error:
            log.warning("messages of a chat wait for the journal: %s", error)
        finally:
            del self._resuming[chat]

    async def _resume_own(self, chat: ConversationKey) -> None:
        asked: frozenset[int] = frozenset()
        held_by_others: frozenset[int] = frozenset()
        while True:
            with self.held_rows.arriving():
                busy = self._held()
                rows = await self._inbox.list_own(chat)
                # This node is not accepting a message of the chat, so all earlier messages have been dispatched.
                busy |= self._held()
                rows = [row for row in rows if row.id not in busy]
                migrated = frozenset(row.id for row in rows if _was_moved(row))
                if migrated <= asked:
                    for row in rows:
                        if row.id not in held_by_others and row.key.channel in self._channels:
                            self._resume_row(row, _former_thread(row))
                    return
            # Read the rows again, because another node may have finished and released some of them meanwhile.
            asked, held_by_others = (
                migrated,
                await self.held_rows.list_held_by_others(sorted(migrated)),
            )

    def _held(self) -> frozenset[int]:
        return self._conversations.row_ids | self._gestures.row_ids | self._running

    def _resume_row(self, row: InboxRow, former_thread: str | None) -> None:
        try:
            inbound = replace(decode_inbound(row.body), key=row.key)
        except ValueError:
            log.exception("inbox row %s cannot be decoded; it is marked dead", row.id)
            target = decode_reply_target(row.body)
            if target is None:  # there is no one to notify
                self._tasks.start_soon(self._mark_dead, row)
            else:
                self._conversations.give_up(row, target)
            return
        self.dispatch(row, inbound, former_thread=former_thread)

    async def _mark_dead(self, row: InboxRow) -> None:
        try:
            with unwrapped():
                await self._inbox.finish(row.id, [], dead=True)
        except StoreError:
            log.exception("inbox row %s could not be marked dead", row.id)

    async def _command(
        self, row: InboxRow, inbound: InboundMessage, command: ParsedCommand | None
    ) -> None:
        """Run one command. Raises no errors."""
        bind_conversation(row.key.channel, row.conversation_id, row.thread_id)
        try:
            with unwrapped():
                await self._commands.run(row, inbound, command)
            self._tracer.record_end(row, outcome="command", ended_at=self._now())
        except Exception as error:
            if is_repeatable(error):
                # The row stays unfinished, and a search (bus/nodes/failover.py) resumes it.
                log.exception("command %s could not be stored; it is retried", row.id)
                return
            log.exception("command %s failed", row.id)
            await self._fail(row, inbound)
        finally:
            self._running.discard(row.id)

    async def _fail(self, row: InboxRow, inbound: InboundMessage) -> None:
        try:
            await self._commands.fail(row, inbound)
        except Exception:
            log.exception("could not report the failure of command %s", row.id)


def _former_thread(row: InboxRow) -> str | None:
    """Return a chat row's thread, if its conversation now has a different one."""
    if row.kind == "command" or row.thread_id == row.current_thread_id:
        return None
    return row.thread_id


def _was_moved(row: InboxRow) -> bool:
    """Return whether a row was accepted when its chat had a different ID."""
    try:
        return decode_inbound(row.body).key.chat != row.key.chat
    except ValueError:
        return False
