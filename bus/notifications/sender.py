"""Puts the messages of accepted broadcasts into the outbox, a few at a time, so that answers do not wait."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import anyio

from bus.messages import ReplyTarget
from bus.notifications.content import NotificationFile, decode_files
from bus.notifications.rows import Recipient, key_prefix
from bus.outbound.split import split_text
from bus.outbound.worker import DeliveryWorker
from bus.platform import ChannelHealth, Clock, ConnectionState
from store.errors import StoreError
from store.nodes import Nodes
from store.notifications import Notification, NotificationStore, WaitingChat
from store.outbox import NewOutboxRow

log = logging.getLogger(__name__)

IN_FLIGHT = 5
"""Maximum number of a channel's unsent broadcast messages in the outbox, unless a single chat gets more.

An answer waits for at most this many.
"""

INTERVAL_S = 0.4
"""Time between two checks, seconds. It allows at most 12.5 messages a second.

Telegram allows 30 for bulk messages, and Feishu 16.
"""

STUCK_AFTER_S = 60.0
"""Seconds after which an unsent message no longer counts toward the maximum, so that others continue."""

RECONNECT_S = 1.0
"""How often to check whether a channel with waiting chats is connected again, seconds."""

IDLE_S = 30.0
"""How often to look for broadcasts whose signal was lost, seconds."""


class BroadcastSender:
    """Sends accepted broadcasts. Only one of the processes that share the database sends at a time.

    Args:
        health: Returns the state of every running channel.
    """

    def __init__(
        self,
        store: NotificationStore,
        delivery: DeliveryWorker,
        *,
        health: Callable[[], Mapping[str, ChannelHealth]],
        now: Clock,
    ) -> None:
        self._store = store
        self._delivery = delivery
        self._health = health
        self._now = now
        self._waiting = anyio.Event()
        self._in_flight: dict[str, dict[str, float]] = {}
        self._scope = anyio.CancelScope()

    async def wake(self) -> None:
        """Look for waiting chats now."""
        self._waiting.set()

    async def run(self, nodes: Nodes) -> None:
        """Send until canceled or stopped."""
        with self._scope:
            while True:
                async with nodes.exclusive("broadcasts"):
                    await self._run()

    def stop(self) -> None:
        """Put no more messages into the outbox. The next process sends the rest."""
        self._scope.cancel()

    async def _run(self) -> None:
        while True:
            self._waiting = anyio.Event()
            wait_s = IDLE_S
            try:
                wait_s = await self._advance()
            except StoreError as error:
                log.warning("broadcasts wait for the journal: %s", error)
            except Exception:
                log.exception("broadcasts failed and will be retried")
            with anyio.move_on_after(wait_s):
                await self._waiting.wait()

    async def _advance(self) -> float:
        """Put some messages of each connected channel into the outbox.

        Return how soon to check again, seconds. Raises StoreError.
        """
        wait_s = IDLE_S
        for channel, health in self._health().items():
            broadcast = await self._store.find_next(channel)
            if broadcast is None:
                continue
            if health.state is ConnectionState.CONNECTED:
                await self._fill(channel, broadcast)
                wait_s = INTERVAL_S
            else:
                wait_s = min(wait_s, RECONNECT_S)
        return wait_s

    async def _fill(self, channel: str, broadcast: Notification) -> None:
        """Put as many messages into the outbox as the maximum allows. Raises StoreError."""
        room = IN_FLIGHT - await self._count_in_flight(channel)
        if room <= 0:
            return
        adapter, text = self._delivery.adapter(channel), broadcast.text
        texts = await split_text(adapter, text) if text.strip() else []
        files = decode_files(broadcast.files)
        rows = await self._store.enqueue_next(
            channel,
            broadcast,
            max(1, room // (len(texts) + len(files))),
            rows_for=partial(_rows_for, broadcast, texts, files),
            now=self._now(),
        )
        stuck_at = anyio.current_time() + STUCK_AFTER_S
        self._in_flight[channel] |= {row.key: stuck_at for row in rows}
        for row in rows:
            self._delivery.notify(row.conversation)

    async def _count_in_flight(self, channel: str) -> int:
        """Return the number of this process's unsent messages in a channel. Raises StoreError."""
        sent = self._in_flight.setdefault(channel, {})
        if sent:
            now, still_open = anyio.current_time(), await self._store.list_open_keys([*sent])
            self._in_flight[channel] = {
                key: stuck_at
                for key, stuck_at in sent.items()
                if key in still_open and stuck_at > now
            }
        return len(self._in_flight[channel])


def _rows_for(
    broadcast: Notification,
    texts: Sequence[str],
    files: Sequence[NotificationFile],
    chat: WaitingChat,
) -> list[NewOutboxRow]:
    to = chat.conversation
    recipient = Recipient(
        conversation=to,
        target=ReplyTarget(chat=to.chat, user=chat.recipient),
        is_private=chat.is_private,
    )
    prefix = key_prefix(broadcast.channel, broadcast.key)
    return recipient.rows(f"{prefix}{to.channel}:{to.workspace}:{to.chat}:", texts, files)
