"""Accepts broadcasts, each ID only once."""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from anyio import to_thread
from pydantic import TypeAdapter

from bus.config import ChannelPolicy
from bus.notifications.audience import AudienceKind, select_chats
from bus.notifications.chat_directory import ChatDirectory
from bus.notifications.content import decode_files, encode_files, hash_request, store_files
from bus.notifications.rows import key_prefix, text_of_row
from bus.platform import Clock, OutgoingFile
from store.chats import KnownChat
from store.errors import RowNotFound
from store.notifications import BROADCAST, NewNotification, Notification, NotificationStore
from store.outbox_files import OutboxFiles
from store.pairings import PairingStore
from store.retention import DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastRequest:
    """A broadcast that an administrator requests.

    Attributes:
        text: Markdown; "" = only files.
        files: At most as large as the platform of each channel accepts.
        key: The broadcast's ID. A request with a known ID is a repetition; "" = create a new ID.
        channels: The requested channels; None = all.
        left_out: The channels among them that get nothing, with the reason.
        active_days: Only chats with a message in this many days; None = all known chats.
    """

    text: str = ""
    files: Sequence[OutgoingFile] = ()
    key: str = ""
    channels: Sequence[str] | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    audience: AudienceKind = "private"
    active_days: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelReach:
    """The chats of a channel that a broadcast reaches.

    Attributes:
        denied: Number of chats that get nothing, because the access policy no longer admits them.
        left_out: Why the whole channel gets nothing; "" = it is not left out.
    """

    chats: int = 0
    denied: int = 0
    left_out: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastReceipt:
    """The result of a broadcast request.

    Attributes:
        key: The broadcast's ID; "" = the reach was only counted and nothing was accepted.
        reach: Its reach by channel when it was accepted.
        waiting: Number of chats whose message is not in the outbox yet.
        is_repeat: Whether it had been accepted before, so that this request changed nothing.
    """

    key: str
    reach: Mapping[str, ChannelReach]
    waiting: int
    is_repeat: bool = False

    @property
    def chats(self) -> int:
        """Number of chats that get it."""
        return sum(one.chats for one in self.reach.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastStatus:
    """A past broadcast.

    Attributes:
        text: Its Markdown, or the names of its files; "" = its messages were delivered a week ago.
        chats: Number of chats it was meant for.
        waiting: Number of chats whose message is not in the outbox yet.
        deliveries: Number of its messages in each state of the outbox. Delivered ones are deleted after a week.
        created_at: Unix seconds.
    """

    key: str
    text: str
    chats: int
    waiting: int
    deliveries: Mapping[str, int]
    created_at: float


_REACH: TypeAdapter[dict[str, ChannelReach]] = TypeAdapter(dict[str, ChannelReach])


class Broadcasts:
    """Accepts broadcasts; `BroadcastSender` sends them.

    Args:
        policies: By channel.
        on_accepted: Called after a broadcast has been accepted.
    """

    def __init__(
        self,
        store: NotificationStore,
        *,
        files: OutboxFiles,
        directory: ChatDirectory,
        pairings: PairingStore,
        policies: Mapping[str, ChannelPolicy],
        on_accepted: Callable[[], None],
        now: Clock,
    ) -> None:
        self._accepted = on_accepted
        self._store = store
        self._files = files
        self._directory = directory
        self._pairings = pairings
        self._policies = policies
        self._now = now

    async def count(self, request: BroadcastRequest, channels: Sequence[str]) -> BroadcastReceipt:
        """Return the reach of a broadcast to these channels without sending it. Raises StoreError."""
        chats, reach = await self._select(request, channels)
        return BroadcastReceipt(key="", reach=reach, waiting=len(chats))

    async def accept(self, request: BroadcastRequest, channels: Sequence[str]) -> BroadcastReceipt:
        """Store a broadcast to these channels, once for each key. Once this returns, it will be sent.

        Raises:
            RowConflict: Another broadcast has this key.
            StoreError: The broadcast may or may not have been stored. Repeat the request with the same key.
            OSError: A file cannot be read.
        """
        key, digest = request.key or uuid.uuid4().hex, await _hash(request)
        if earlier := await self._store.find_repeated(BROADCAST, key, digest):
            return await self._repeat(earlier)
        chats, reach = await self._select(request, channels)
        files = await store_files(self._files, request.files, channel=BROADCAST, key=key)
        new = NewNotification(
            channel=BROADCAST,
            key=key,
            digest=digest,
            text=request.text,
            files=encode_files(files),
            recipients=_REACH.dump_json(dict(reach)).decode(),
            created_at=self._now(),
        )
        if not await self._store.accept(new, chats=chats):
            return await self.accept(request, channels)  # A concurrent request was faster.
        self._accepted()
        return BroadcastReceipt(key=key, reach=reach, waiting=len(chats))

    async def find(self, key: str) -> BroadcastStatus:
        """Return a broadcast. Raises RowNotFound, StoreError."""
        found = await self._store.find(BROADCAST, key)
        if found is None:
            raise RowNotFound(f"There is no broadcast {key}.")
        return await self._status(found, await self._store.count_waiting(found.id))

    async def list_recent(self, *, limit: int) -> list[BroadcastStatus]:
        """Return the newest broadcasts, newest first. Raises StoreError."""
        found = await self._store.list_broadcasts(limit=limit)
        return [await self._status(one, waiting) for one, waiting in found]

    async def _status(self, found: Notification, waiting: int) -> BroadcastStatus:
        deliveries, body = await self._store.count_states(key_prefix(BROADCAST, found.key))
        return BroadcastStatus(
            key=found.key,
            text=_shown(found) or text_of_row(body),
            chats=sum(reach.chats for reach in _REACH.validate_json(found.recipients).values()),
            waiting=waiting,
            deliveries=deliveries,
            created_at=found.created_at,
        )

    async def stop(self, key: str) -> int:
        """Stop sending a broadcast to further chats.

        Return the number of chats that will not get it. Raises RowNotFound, StoreError.
        """
        return await self._store.stop(key)

    async def _repeat(self, earlier: Notification) -> BroadcastReceipt:
        """Return the receipt of a repeated request. Raises StoreError."""
        return BroadcastReceipt(
            key=earlier.key,
            reach=_REACH.validate_json(earlier.recipients),
            waiting=await self._store.count_waiting(earlier.id),
            is_repeat=True,
        )

    async def _select(
        self, request: BroadcastRequest, channels: Sequence[str]
    ) -> tuple[list[KnownChat], dict[str, ChannelReach]]:
        await self._directory.refresh()
        approved = {
            (one.channel, one.workspace, one.user_id)
            for one in await self._pairings.list_all()
            if one.approved_at is not None
        }
        days, chats = request.active_days, list[KnownChat]()
        since = 0.0 if days is None else self._now() - days * DAY_S
        reach = {name: ChannelReach(left_out=why) for name, why in request.left_out.items()}
        for name in channels:
            known = await self._directory.list_channel(name, since=since)
            select = partial(
                select_chats, known, self._policies[name], request.audience, approved=approved
            )
            admitted, denied = await to_thread.run_sync(select)
            chats += admitted
            reach[name] = ChannelReach(chats=len(admitted), denied=denied)
        return chats, reach


async def _hash(request: BroadcastRequest) -> str:
    channels = None if request.channels is None else sorted(request.channels)
    asked = json.dumps([request.text, request.audience, channels, request.active_days])
    return await hash_request([asked], request.files)


def _shown(found: Notification) -> str:
    """Return what people will see of a broadcast; "" = no chat is waiting for it."""
    return found.text or "\n".join(f"[{file.name}]" for file in decode_files(found.files))
