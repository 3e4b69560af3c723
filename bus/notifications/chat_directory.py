"""The chats in which people have written to the bot, copied from the inbox before retention deletes the messages."""

from collections.abc import Iterable

from anyio import to_thread
from pydantic import BaseModel, ValidationError

from bus.messages import Sender
from bus.platform import Clock
from store.chats import ChatStore, KnownChat, NewestMessage

MARGIN_S = 7200.0
"""How much earlier than the newest known message a refresh begins, seconds.

It covers two rounds of housekeeping, in case another process was stopped, a commit came late, or a clock was set.
"""

REFRESH_S = 60.0
"""How often an unknown chat makes the table be refreshed, seconds."""


class ChatDirectory:
    """Keeps the table of chats.

    Messages stay in the inbox for at least a week. Every hour, housekeeping refreshes the table before it deletes any.
    So accepting a message does not need to write here.
    """

    def __init__(self, chats: ChatStore, *, now: Clock) -> None:
        self._chats = chats
        self._now = now
        self._refreshed_at = 0.0

    async def refresh(self) -> None:
        """Store the chats of messages that any process has accepted since the last refresh. Raises StoreError."""
        since = min(await self._chats.find_newest_time(), self._now()) - MARGIN_S
        newest = await self._chats.list_newest(since=since)
        await self._chats.put(await to_thread.run_sync(_chats_of, newest))

    async def find(self, channel: str, *, chat: str = "", person: str = "") -> KnownChat | None:
        """Return a chat by its ID, or the private chat with a person; None = no one has written in it.

        Raises:
            StoreError: The journal cannot be used.
        """
        found = await self._chats.find(channel, chat=chat, person=person)
        if found is None and not self._refreshed_at <= self._now() < self._refreshed_at + REFRESH_S:
            self._refreshed_at = self._now()
            await self.refresh()
            found = await self._chats.find(channel, chat=chat, person=person)
        return found

    async def find_workspace(self, channel: str) -> str:
        """Return the workspace of all chats of a channel; "" = unknown, or several. Raises StoreError."""
        return await self._chats.find_workspace(channel)

    async def list_channel(self, channel: str, *, since: float) -> list[KnownChat]:
        """Return the chats of a channel with a message since a time (Unix seconds). Raises StoreError."""
        return await self._chats.list_channel(channel, since=since)


class _Target(BaseModel):
    user: str = ""


class _StoredChat(BaseModel):
    """The part of a stored message that describes its chat."""

    sender: Sender
    is_private: bool
    reply_target: _Target


def _chats_of(newest: Iterable[NewestMessage]) -> list[KnownChat]:
    """Return the chats of conversations, given the newest message of each.

    In a chat with topics, the newest message in any of them counts.
    """
    found: dict[tuple[str, str, str], KnownChat] = {}
    for message in sorted(newest, key=lambda one: one.received_at):
        try:
            written = _StoredChat.model_validate_json(message.body)
        except ValidationError:
            continue  # The row is damaged, which is reported elsewhere.
        found[message.channel, message.workspace, message.chat] = KnownChat(
            channel=message.channel,
            workspace=message.workspace,
            chat=message.chat,
            is_private=written.is_private,
            user_id=written.sender.user_id,
            user_kind=written.sender.kind,
            recipient=written.reply_target.user,
            received_at=message.received_at,
        )
    return list(found.values())
