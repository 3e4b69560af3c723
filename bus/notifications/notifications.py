"""Accepts messages of API clients to one chat, topic or person, each key only once, and tells what became of them."""

import hashlib
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from anyio import to_thread
from pydantic import TypeAdapter

from bus.messages import MessageId, platform_message_id
from bus.notifications.chat_directory import ChatDirectory
from bus.notifications.rows import Recipient, message_key
from bus.outbound.split import split_text
from bus.outbound.worker import DeliveryWorker
from bus.platform import Clock, OutgoingFile
from store.errors import RowNotFound
from store.notifications import NewNotification, Notification, NotificationStore, key_conflict
from store.outbox import DeliveryState, NewOutboxRow, OutboxRow, OutboxStore

NotificationState = DeliveryState | Literal["discarded"]
"""The state of a notification: of its least advanced delivery, or `discarded` = an administrator deleted them."""

_WORST_FIRST: Sequence[DeliveryState] = ("pending", "sending", "failed", "uncertain", "delivered")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationRequest:
    """A message to one place.

    Attributes:
        channel: A running channel.
        chat: The platform's ID of a chat, or of a person: then it goes to the private chat with them.
        topic: Slack: the first message of a thread. Telegram: a forum topic. Feishu: a topic, or a message to reply
            to. "" = none.
        is_person: Whether `chat` is a person.
        text: Markdown; "" = only files.
        key: The client's name for it. A request with a known key is a repetition; "" = create a new one.
        files: At most as large as the platform accepts.
        author: The person who writes it as the bot; "" = nobody does.
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
    """An accepted message and its deliveries, in their order.

    Attributes:
        is_repeat: Whether it had been accepted before, so that the request changed nothing.
        chat, topic, is_person: As in the request.
        created_at: When it was accepted, Unix seconds.
        deliveries: Its rows of the outbox that exist: one for each message of its text, and one for each file.
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
        """What became of it: delivered only if all of its deliveries are."""
        states = {row.state for row in self.deliveries}
        return next((state for state in _WORST_FIRST if state in states), "discarded")

    @property
    def error(self) -> str:
        """Why it is not delivered, in the platform's words; "" = no attempt failed."""
        return next((row.error for row in self.deliveries if row.error), "")

    @property
    def message_ids(self) -> list[str]:
        """The platform's IDs of the sent messages."""
        sent = [row.platform_id for row in self.deliveries if row.platform_id]
        return [platform_message_id(MessageId(one)) for one in sent]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What a notification's row says about its recipient, and its number of deliveries."""

    chat: str
    topic: str
    is_person: bool
    deliveries: int


_PLACE: TypeAdapter[_Place] = TypeAdapter(_Place)


class Notifications:
    """Accepts messages to one place, and knows their state."""

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
        """Store a message, once for each key of a channel. After the return, it will be sent.

        Raises:
            RowConflict: Another message has this key.
            StoreError: The message may or may not have been stored. Repeat the request with the same key.
            OSError: A file cannot be read.
        """
        key, digest = request.key or uuid.uuid4().hex, await to_thread.run_sync(_digest, request)
        if request.key and (earlier := await self._find_earlier(request.channel, key, digest)):
            return earlier
        recipient = await self._directory.find_recipient(
            request.channel, request.chat, topic=request.topic, is_person=request.is_person
        )
        rows = [row async for row in self._rows(request, key, recipient)]
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
        is_new = await self._store.accept(new, rows)
        self._delivery.notify(recipient.conversation)
        status = await self.find(request.channel, key)
        # A concurrent request with this key may have been faster.
        return status if is_new else _as_repeat(status)

    async def find(self, channel: str, key: str) -> NotificationStatus:
        """Return a message with its state. Raises RowNotFound, StoreError."""
        found = await self._store.find(channel, key) if channel else None
        if found is None:
            raise RowNotFound(f"There is no message {key}.")
        return await self._status(found)

    async def _find_earlier(self, channel: str, key: str, digest: str) -> NotificationStatus | None:
        found = await self._store.find(channel, key)
        if found is None:
            return None
        if found.digest != digest:
            raise key_conflict(channel, key)
        return _as_repeat(await self._status(found))

    async def _status(self, found: Notification) -> NotificationStatus:
        place = _PLACE.validate_json(found.recipients)
        keys = [message_key(found.channel, found.key, part) for part in range(place.deliveries)]
        rows = await self._outbox.find_all(keys)
        return NotificationStatus(
            channel=found.channel,
            key=found.key,
            chat=place.chat,
            topic=place.topic,
            is_person=place.is_person,
            created_at=found.created_at,
            deliveries=sorted(rows, key=lambda row: row.id),
        )

    async def _rows(
        self, request: NotificationRequest, key: str, recipient: Recipient
    ) -> AsyncIterator[NewOutboxRow]:
        adapter = self._delivery.adapter(request.channel)
        parts = await split_text(adapter, request.text) if request.text else []
        for number, part in enumerate(parts):
            outbox_key = message_key(request.channel, key, number)
            yield recipient.text_row(outbox_key, part, author=request.author)
        for number, file in enumerate(request.files, start=len(parts)):
            outbox_key = message_key(request.channel, key, number)
            file_id = await self._outbox.files.put(file.path, outbox_key=outbox_key)
            yield recipient.file_row(outbox_key, file, file_id=file_id)


def _digest(request: NotificationRequest) -> str:
    """Return a hash of a request, equal for repetitions. Blocking."""
    hashed = hashlib.sha256()
    for part in _hashed_parts(request):
        hashed.update(len(part).to_bytes(8, "big"))
        hashed.update(part)
    return hashed.hexdigest()


def _hashed_parts(request: NotificationRequest) -> Iterable[bytes]:
    for word in (request.chat, request.topic, str(request.is_person), request.text):
        yield word.encode()
    for file in request.files:
        yield file.name.encode()
        with file.path.open("rb") as content:
            yield hashlib.file_digest(content, "sha256").digest()


def _as_repeat(status: NotificationStatus) -> NotificationStatus:
    return replace(status, is_repeat=True)
