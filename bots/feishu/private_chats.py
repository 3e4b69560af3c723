"""Remembers private chats, because button presses and menu clicks do not say whether a chat is private or with whom."""

from collections import OrderedDict

from bus.messages import InboundMessage, Sender

_MAX_CHATS = 10_000
"""Maximum number of chats to remember. Beyond that, the least recently used are forgotten."""


class PrivateChats:
    """The private chats that this process knows, with the person in each."""

    def __init__(self) -> None:
        self._senders: OrderedDict[str, Sender] = OrderedDict()
        self._chats: dict[str, str] = {}

    def remember_message(self, inbound: InboundMessage) -> None:
        """Remember the chat of a message."""
        if inbound.is_private:
            self._remember(inbound.key.chat, inbound.sender)

    def remember(self, chat: str, person: str) -> None:
        """Remember a private chat with a person, without further data."""
        if chat not in self._senders:
            self._remember(chat, Sender(user_id=person, kind="unknown"))

    def is_private(self, chat: str) -> bool:
        """Return whether a chat is known to be private."""
        return chat in self._senders

    def chat_with(self, person: str) -> tuple[str, Sender] | None:
        """Return the private chat with a person, and their data; None if no chat is known."""
        chat = self._chats.get(person)
        return (chat, self._senders[chat]) if chat is not None else None

    def _remember(self, chat: str, sender: Sender) -> None:
        self._senders[chat] = sender
        self._senders.move_to_end(chat)
        self._chats[sender.user_id] = chat
        while len(self._senders) > _MAX_CHATS:
            _, forgotten = self._senders.popitem(last=False)
            self._chats.pop(forgotten.user_id, None)
