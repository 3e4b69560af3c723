"""Indexes the words of accepted messages in the background, so that administrators find them."""

import anyio

from bus.messages import decode_inbound
from store.message_words import MessageWords, UnindexedMessage, words_of

BATCH = 200
"""Messages of one transaction."""

EVERY_S = 1.0
"""Pause between two looks, seconds."""


async def index_messages(words: MessageWords) -> None:
    """Index messages until canceled. Raises StoreError."""
    while True:
        missing = await words.list_missing(limit=BATCH)
        if missing:
            await words.add([(one.id, _words(one)) for one in missing])
        if len(missing) < BATCH:
            await anyio.sleep(EVERY_S)


def _words(message: UnindexedMessage) -> str:
    try:
        inbound = decode_inbound(message.body)
    except ValueError:  # a damaged row
        return words_of(message.key, "", [])
    sender = inbound.sender
    names = [sender.name, sender.user_id, inbound.chat_title, inbound.topic_title]
    return words_of(message.key, sender.user_id, [inbound.text, *names])
