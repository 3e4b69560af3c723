"""What messages tell of chats and presses do not: whether a chat is private, and with whom."""

from collections import OrderedDict
from typing import Final

from bus.messages import InboundMessage

_KEPT: Final = 10_000
"""Private chats that are remembered; of more, those that were quiet for longest are forgotten."""


class PrivateChats:
    """The private chats that this process knows of."""

    def __init__(self) -> None:
        self._people: OrderedDict[str, str] = OrderedDict()
        self._chats: dict[str, str] = {}

    def remember_message(self, inbound: InboundMessage) -> None:
        """Note where a message came from."""
        if inbound.private:
            self.remember(inbound.key.chat, inbound.sender.user_id)

    def remember(self, chat: str, person: str) -> None:
        """Note a private chat."""
        self._people[chat] = person
        self._people.move_to_end(chat)
        self._chats[person] = chat
        while len(self._people) > _KEPT:
            _, gone = self._people.popitem(last=False)
            self._chats.pop(gone, None)

    def is_private(self, chat: str) -> bool:
        """Return whether a chat is known to be private."""
        return chat in self._people

    def chat_with(self, person: str) -> str:
        """Return the private chat with a person; "" if it is not known."""
        return self._chats.get(person, "")
