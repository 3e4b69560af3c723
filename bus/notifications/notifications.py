"""Accepts messages from API clients to one chat, topic or person, each key only once, and reports their state."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import TypeAdapter

from bus.messages import MessageId, platform_message_id
from bus.notifications.chat_directory import ChatDirectory
from bus.notifications.content import hash_request, store_files
from bus.notifications.rows import key_prefix
from bus.outbound.split import split_text
from bus.outbound.worker import DeliveryWorker
from bus.platform import Clock, OutgoingFile
from store.errors import RowNotFound
from store.notifications import NewNotification, Notification, NotificationStore
from store.outbox import DeliveryState, OutboxRow, OutboxStore

NotificationState = DeliveryState | Literal["discarded"]
"""The state of a notification: that of its least advanced delivery; `discarded` = an administrator deleted it."""

_WORST_FIRST: Sequence[DeliveryState] = ("pending", "sending", "failed", "uncertain", "delivered")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationRequest:
    """A message to one place.

    Attributes:
        channel: A running channel.
        chat: The platform's ID of a chat, or of a person to write to in their private chat.
        topic: Slack: the first message of a thread. Telegram: a forum topic. Feishu: a topic, or a message to reply
            to. "" = none.
        is_person: Whether `chat` is a person.
        text: Markdown; "" = only files.
        key: The client's name for it. A request with a known key is a repetition; "" = create a new one.
        files: At most as large as the platform accepts.
        author: The person who writes it as the bot; "" = no person does.
    """

    channel: str
    chat: str
    topic: str = ""
    is_person: bool = False
    text: str = ""
    key: str = ""
    files: Sequence[OutgoingFile] = ()
    author: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationStatus:
    """An accepted message and its deliveries, in order.

    Attributes:
        is_repeat: Whether it had been accepted before, so that the request changed nothing.
        chat, topic, is_person: As in the request.
        created_at: When it was accepted, Unix seconds.
        deliveries: Its existing outbox rows: one for each message of its text, and one for each file.
    """

    channel: str
    key: str
    chat: str
    topic: str
    is_person: bool
    created_at: float
    deliveries: Sequence[OutboxRow]
    is_repeat: bool = False

    @property
    def state(self) -> NotificationState:
        """Its state. It is delivered only if all its deliveries are."""
        states = {row.state for row in self.deliveries}
        return next((state for state in _WORST_FIRST if state in states), "discarded")

    @property
    def error(self) -> str:
        """Why it was not delivered, in the platform's words; "" = no attempt failed."""
        return next((row.error for row in self.deliveries if row.error), "")

    @property
    def message_ids(self) -> list[str]:
        """The platform's IDs of the sent messages."""
        sent = [row.platform_id for row in self.deliveries if row.platform_id]
        return [platform_message_id(MessageId(one)) for one in sent]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The recipient in a notification's row, and the number of deliveries."""

    chat: str
    topic: str
    is_person: bool
    deliveries: int


_PLACE: TypeAdapter[_Place] = TypeAdapter(_Place)


class Notifications:
    """Accepts messages to one place, and reports their state."""

    def __init__(
        self,
        store: NotificationStore,
        *,
        outbox: OutboxStore,
        delivery: DeliveryWorker,
        directory: ChatDirectory,
        now: Clock,
    ) -> None:
        self._store = store
        self._outbox = outbox
        self._delivery = delivery
        self._directory = directory
        self._now = now

    def max_file_bytes(self, channel: str) -> int:
        """Return the size of the largest file that a channel sends, bytes. Raises RowNotFound."""
        try:
            return self._delivery.adapter(channel).capabilities.max_file_bytes
        except KeyError:
            raise RowNotFound(f"There is no running channel {channel}.") from None

    async def send(self, request: NotificationRequest) -> NotificationStatus:
        """Store a message, once for each key of a channel. Once this returns, it will be sent.

        Raises:
            RowConflict: Another message has this key.
            StoreError: The message may or may not have been stored. Repeat the request with the same key.
            OSError: A file cannot be read.
        """
        key = request.key or uuid.uuid4().hex
        words = [request.chat, request.topic, str(request.is_person), request.text]
        digest = await hash_request(words, request.files)
        earlier = await self._store.find_repeated(request.channel, key, digest)
        if earlier is not None:
            return replace(await self._status(earlier), is_repeat=True)
        recipient = await self._directory.find_recipient(
            request.channel, request.chat, topic=request.topic, is_person=request.is_person
        )
        adapter, journal = self._delivery.adapter(request.channel), self._outbox.files
        rows = recipient.rows(
            key_prefix(request.channel, key),
            await split_text(adapter, request.text) if request.text.strip() else [],
            await store_files(journal, request.files, channel=request.channel, key=key),
            author=request.author,
        )
        place = _Place(
            chat=request.chat,
            topic=request.topic,
            is_person=request.is_person,
            deliveries=len(rows),
        )
        new = NewNotification(
            channel=request.channel,
            key=key,
            digest=digest,
            recipients=_PLACE.dump_json(place).decode(),
            created_at=self._now(),
        )
        is_new = await self._store.accept(new, rows=rows)
        self._delivery.notify(recipient.conversation)
        status = await self.find(request.channel, key)
        # A concurrent request with this key may have been faster.
        return replace(status, is_repeat=not is_new)

    async def find(self, channel: str, key: str) -> NotificationStatus:
        """Return a message with its state. Raises RowNotFound, StoreError."""
        found = await self._store.find(channel, key) if channel else None
        if found is None:
            raise RowNotFound(f"There is no message {key}.")
        return await self._status(found)

    async def _status(self, found: Notification) -> NotificationStatus:
        place = _PLACE.validate_json(found.recipients)
        prefix = key_prefix(found.channel, found.key)
        rows = await self._outbox.find_all([f"{prefix}{n}" for n in range(place.deliveries)])
        return NotificationStatus(
            channel=found.channel,
            key=found.key,
            chat=place.chat,
            topic=place.topic,
            is_person=place.is_person,
            created_at=found.created_at,
            deliveries=sorted(rows, key=lambda row: row.id),
        )
