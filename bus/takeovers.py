"""Takes conversations over from the agent, sends what the person writes as the bot, and hands them back.

The row of the conversation says who answers. Every transaction that acts on a message reads this row: accepting a
message (`store.inbox_accept`), and starting a turn that waited or is resumed (`InboxStore.mark_running`). So the
takeover holds even if the process is killed at any moment, and on all nodes. Only turns that are running when a person
takes over have to be stopped. A signal does this, and a search every few seconds in case the signal was lost.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import anyio

from bus.config import AUTO
from bus.context import BusContext
from bus.conversation.conversations import Conversations
from bus.conversation.open_questions import OpenQuestions
from bus.locales import Messages, messages_for
from bus.messages import decode_inbound
from bus.notifications.chat_directory import ChatDirectory
from bus.notifications.notifications import (
    NotificationRequest,
    Notifications,
    NotificationStatus,
)
from bus.notifications.rows import MAX_UNREAD, quote_unread
from store.errors import RowConflict
from store.outbox import NewOutboxRow
from store.takeovers import ConversationControl

log = logging.getLogger(__name__)

TAKEOVERS = "takeovers"
"""Topic of signals between nodes: a conversation was taken over."""

CHECK_S = 5.0
"""How often to look for running turns to stop whose signal was lost, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandBack:
    """A conversation that was handed back. `summary`: what the agent will read with the next message; "" = nothing."""

    conversation: ConversationControl
    summary: str


class Takeovers:
    """Takes over conversations and hands them back.

    Args:
        conversations: The turns to stop.
        questions: The open questions, which are withdrawn.
        directory: Knows where messages to a chat go.
        notifications: Sends what the person writes.
    """

    def __init__(
        self,
        bus: BusContext,
        conversations: Conversations,
        questions: OpenQuestions,
        *,
        directory: ChatDirectory,
        notifications: Notifications,
    ) -> None:
        self._bus = bus
        self._store = bus.stores.takeovers
        self._conversations = conversations
        self._questions = questions
        self._directory = directory
        self._notifications = notifications
        self._signaled = anyio.Event()

    async def find(self, thread_id: str) -> ConversationControl:
        """Return who answers in the conversation that continues in a thread. Raises RowNotFound, StoreError."""
        return await self._store.find(thread_id)

    async def count(self) -> int:
        """Return the number of conversations that a person has taken over. Raises StoreError."""
        return await self._store.count()

    async def begin(self, thread_id: str, by: str) -> ConversationControl:
        """Let a person answer from now on. Nothing changes if one already does.

        The running turn is stopped, and waiting messages are left to the person. Open questions are withdrawn.
        Raises RowNotFound, StoreError.
        """
        before = await self._store.find(thread_id)
        now = self._bus.now()
        notices = await self._notices(before, "begin", now=now, by=by)
        control, withdrawn = await self._store.begin(thread_id, by, now=now, notices=notices)
        self._announce(control)
        for row_id in withdrawn:
            row = await self._bus.stores.history.find(row_id)
            if row is not None and row.key.channel in self._bus.adapters:
                await self._questions.remove_buttons(row, "")
        log.info("%s took over the conversation of thread %s", control.taken_over_by, thread_id)
        return control

    async def send(self, thread_id: str, text: str, *, key: str, by: str) -> NotificationStatus:
        """Send what the person writes as the bot, once for each key of the channel ("" = a new one).

        Raises:
            RowNotFound: There is no such conversation.
            RowConflict: Nobody has taken it over, or another message has this key.
            StoreError: Repeat the request with the same key.
        """
        control = await self._store.find(thread_id)
        if control.taken_over_by is None:
            raise RowConflict("Nobody has taken over this conversation: take it over first.")
        place = control.key
        request = NotificationRequest(
            channel=place.channel,
            chat=place.chat,
            topic=place.topic,
            text=text,
            key=key,
            author=by,
        )
        return await self._notifications.send(request)

    async def end(self, thread_id: str) -> HandBack:
        """Let the agent answer again. With the next message, it reads what was said meanwhile.

        Raises:
            RowNotFound: There is no such conversation.
            RowConflict: Nobody has taken it over.
            StoreError: Repeat the request.
        """
        before, now = await self._store.find(thread_id), self._bus.now()
        notices = await self._notices(before, "end", now=now, by=before.taken_over_by or "")
        control = await self._store.end(thread_id, now=now, notices=notices)
        if control is None:
            raise RowConflict("Nobody has taken over this conversation.")
        self._announce(control)
        log.info("the agent answers again in the conversation of thread %s", thread_id)
        return HandBack(conversation=control, summary=await self.read_meanwhile(control))

    async def read_meanwhile(self, control: ConversationControl) -> str:
        """Return what was said in a conversation since the agent's last run there. Raises StoreError."""
        place = control.key
        newest = await self._bus.stores.inbox.find_newest(place.channel, place.chat, place.topic)
        person = ""
        if newest is not None:
            with suppress(ValueError):  # The row is damaged, which is reported elsewhere.
                message = decode_inbound(newest.body)
                person = message.sender.user_id if message.is_private else ""
        unread = await self._bus.stores.outbox.list_unread(
            place,
            conversation_id=control.conversation_id,
            thread_id=control.thread_id,
            person=person,
            seq=control.last_seq + 1,
            before=self._bus.now(),
            limit=MAX_UNREAD,
        )
        return quote_unread(unread)

    async def wake(self) -> None:
        """Stop the turns of conversations that were just taken over."""
        self._signaled.set()

    async def run(self) -> None:
        """Stop turns of conversations that were taken over, until canceled. Raises StoreError."""
        while True:
            self._signaled = anyio.Event()
            taken = await self._store.list_all()
            self._conversations.leave_to_people(
                {one.key: one.taken_over_at or 0.0 for one in taken}
            )
            with anyio.move_on_after(CHECK_S):
                await self._signaled.wait()

    def _announce(self, control: ConversationControl) -> None:
        self._bus.calls.database.signals.publish(TAKEOVERS)
        self._bus.delivery.notify(control.key)
        self._bus.tracer.record_takeover()

    async def _notices(
        self, control: ConversationControl, what: Literal["begin", "end"], *, now: float, by: str
    ) -> Sequence[NewOutboxRow]:
        """Return the row that notifies people; none if they are not notified. Raises StoreError."""
        if not self._bus.config.takeover.tell_people:
            return []
        place = control.key
        recipient = await self._directory.find_recipient(
            place.channel, place.chat, topic=place.topic
        )
        texts = await self._texts(control)
        text = texts.taken_over if what == "begin" else texts.handed_back
        prefix = f"takeover:{control.conversation_id}:{now:.3f}:{what}:"
        return recipient.rows(prefix, [text], author=by)

    async def _texts(self, control: ConversationControl) -> Messages:
        """Return the bot's messages in the language of a conversation."""
        place = control.key
        newest = await self._bus.stores.inbox.find_newest(place.channel, place.chat, place.topic)
        if newest is not None:
            with suppress(ValueError):
                return decode_inbound(newest.body).reply_target.texts
        language = self._bus.config.language
        return messages_for("" if language == AUTO else language)
