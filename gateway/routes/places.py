"""What people call places and each other."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from bus.messages import InboundMessage, decode_inbound
from bus.service import Bus
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


async def owner_names(
    bus: Bus | None, people: Iterable[str | None], rooms: Iterable[str | None]
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the known names of people and of rooms, by what the usage calls them. Raises StoreError."""
    if bus is None:
        return {}, {}
    return (
        await bus.people.names(sorted({one for one in people if one})),
        await bus.known_chats.titles(sorted({one for one in rooms if one})),
    )
