"""What people call the places of messages and conversations."""

from collections.abc import Sequence
from contextlib import suppress

from bus.messages import InboundMessage, decode_inbound
from store.conversations import ConversationKey
from store.inbox import InboxStore


def place_of(inbound: InboundMessage) -> str:
    """Return what people call the place of a message; "" = unknown. A private chat has its person's name."""
    title = " › ".join(filter(None, (inbound.chat_title, inbound.topic_title)))
    return title or (inbound.sender.name if inbound.is_private else "")


async def place_names(
    inbox: InboxStore, keys: Sequence[ConversationKey]
) -> dict[ConversationKey, str]:
    """Return what people call conversations, by their newest messages; "" = unknown. Raises StoreError."""
    names = dict.fromkeys(keys, "")
    for row in await inbox.list_newest(names):
        with suppress(ValueError):  # a damaged row
            names[row.key] = place_of(decode_inbound(row.body))
    return names
