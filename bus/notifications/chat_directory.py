"""The chats in which people have written to the bot, copied from the inbox before retention deletes the messages."""

from contextlib import suppress
from dataclasses import replace
from functools import partial

import anyio
from anyio import to_thread

from bus.history.known_chats import chats_of
from bus.messages import ConversationKey, InboundMessage, ReplyTarget, decode_inbound
from bus.notifications.rows import Recipient
from bus.platform import Clock
from store.chats import ChatStore, KnownChat
from store.inbox import InboxStore

MARGIN_S = 7200.0
"""How much earlier than the newest known message a refresh begins, seconds.

This covers two rounds of housekeeping, in case another process stopped, a commit came late, or a clock was set.
"""

REFRESH_S = 60.0
"""Minimum time between two refreshes of the table because of unknown chats, seconds."""


class ChatDirectory:
    """Keeps the table of chats.

    Messages stay in the inbox for at least a week. Every hour, housekeeping refreshes the table before it deletes any.
    So accepting a message does not need to write here.
    """

    def __init__(self, chats: ChatStore, inbox: InboxStore, *, now: Clock) -> None:
        self._chats = chats
        self._inbox = inbox
        self._now = now
        self._refreshed_at = 0.0
        self._refreshing = anyio.Lock()

    async def refresh(self) -> None:
        """Store the chats of messages that any process has accepted since the last refresh. Raises StoreError."""
        since = min(await self._chats.find_newest_time(), self._now()) - MARGIN_S
        newest = await self._chats.list_newest(since=since)
        await self._chats.put(await to_thread.run_sync(chats_of, newest))

    async def find_recipient(
        self, channel: str, chat: str, *, topic: str = "", is_person: bool = False
    ) -> Recipient:
        """Return where messages for a chat, topic or person go, as far as the journal knows.

        Raises:
            StoreError: The journal cannot be used.
        """
        newest = await self._inbox.find_newest(channel, chat, topic) if topic else None
        if newest is not None:
            with suppress(ValueError):  # The row is damaged, which is reported elsewhere.
                return _topic_recipient(decode_inbound(newest.body), newest.key)
        known = await self._find(channel, chat, is_person=is_person)
        if known is not None:
            chat, workspace, user = known.chat, known.workspace, known.recipient
        else:
            # The adapters write to a person's ID in private.
            workspace = await self._chats.find_workspace(channel)
            user = chat if is_person else ""
        return Recipient(
            conversation=ConversationKey(
                channel=channel, workspace=workspace, chat=chat, topic=topic
            ),
            target=ReplyTarget(chat=chat, thread=topic, user=user),
            is_private=is_person if known is None else known.is_private,
        )

    async def _find(self, channel: str, chat: str, *, is_person: bool) -> KnownChat | None:
        find = partial(self._chats.find, channel, chat=chat, person=chat if is_person else "")
        found = await find()
        if found is None:
            await self._refresh_again()
            found = await find()
        return found

    async def _refresh_again(self) -> None:
        async with self._refreshing:
            if not self._refreshed_at <= self._now() < self._refreshed_at + REFRESH_S:
                await self.refresh()
                self._refreshed_at = self._now()

    async def search_groups(
        self, key: ConversationKey, text: str, *, limit: int
    ) -> list[KnownChat]:
        """Return the groups of a conversation's workspace whose name or ID contains a text. Raises StoreError.

        Those with the newest messages come first. A group can be found at most a minute after its first message.
        """
        await self._refresh_again()
        found = await self._chats.search(
            text, channel=key.channel, is_private=False, limit=limit, offset=0
        )
        return [one for one in found if one.workspace == key.workspace]

    async def find_private(self, key: ConversationKey, person: str) -> KnownChat | None:
        """Return the private chat with a person of the workspace, if they wrote there. Raises StoreError."""
        await self._refresh_again()
        return await self._chats.find(key.channel, chat="", person=person, workspace=key.workspace)

    async def list_channel(self, channel: str, *, since: float) -> list[KnownChat]:
        """Return the chats of a channel with a message since a time (Unix seconds). Raises StoreError."""
        return await self._chats.list_channel(channel, since=since)


def _topic_recipient(message: InboundMessage, key: ConversationKey) -> Recipient:
    """Return the topic of its newest message. On some platforms, only a reply to a message is in its topic."""
    found = message.reply_target
    target = replace(
        found,
        reply_to="" if found.thread else found.reply_to,
        thread_root=found.thread_root or found.reply_to,
        response_url="",
    )
    return Recipient(conversation=key, target=target, is_private=message.is_private)
