"""The names of chats and people, as people see them."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from bus.messages import InboundMessage, decode_inbound
from bus.service import Bus
from store.conversations import ConversationKey
from store.inbox import InboxStore


def place_of(inbound: InboundMessage) -> str:
    """Return the name of a message's chat and topic; "" = unknown. A private chat has its person's name."""
    title = " › ".join(filter(None, (inbound.chat_title, inbound.topic_title)))
    return title or (inbound.sender.name if inbound.is_private else "")


async def place_names(
    inbox: InboxStore, keys: Sequence[ConversationKey]
) -> dict[ConversationKey, str]:
    """Return the names of conversations, as of their newest messages; "" = unknown. Raises StoreError."""
    names = dict.fromkeys(keys, "")
    for row in await inbox.list_newest(names):
        with suppress(ValueError):  # a damaged row
            names[row.key] = place_of(decode_inbound(row.body))
    return names


async def owner_names(
    bus: Bus | None, people: Iterable[str | None], rooms: Iterable[str | None]
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the known names of people and of rooms, by their IDs in the usage. Raises StoreError."""
    if bus is None:
        return {}, {}
    return (
        await bus.people.names(sorted({one for one in people if one})),
        await bus.known_chats.titles(sorted({one for one in rooms if one})),
    )
