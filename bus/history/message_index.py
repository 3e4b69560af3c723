"""Indexes accepted messages in the background: their words, the people who wrote them, and their chats."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import anyio

from bus.history.known_chats import chats_of
from bus.messages import HOOK, InboundMessage, decode_inbound
from bus.settings.memory_scope import global_user_id
from store.chats import NewestMessage, chat_statement
from store.message_words import MessageWords, UnindexedMessage, words_of
from store.people import KnownPerson, person_statement

BATCH = 200
"""Maximum number of messages in one transaction."""

EVERY_S = 1.0
"""Pause between two searches for new messages, seconds."""


async def index_messages(words: MessageWords, on_indexed: Callable[[], None]) -> None:
    """Index messages until canceled. Raises StoreError.

    `on_indexed` is called after each transaction, because names of people and chats may have changed.
    """
    while True:
        missing = await words.list_missing(limit=BATCH)
        if missing:
            await _index(words, missing)
            on_indexed()
        if len(missing) < BATCH:
            await anyio.sleep(EVERY_S)


async def _index(words: MessageWords, missing: Sequence[UnindexedMessage]) -> None:
    decoded = [(one, _decoded(one)) for one in missing]
    people = _people_of((one, message) for one, message in decoded if message is not None)
    chats = chats_of(
        NewestMessage(
            channel=one.key.channel,
            workspace=one.key.workspace,
            chat=one.key.chat,
            body=one.body,
            received_at=one.received_at,
        )
        for one, message in decoded
        if message is not None and message.origin_kind != HOOK  # No one in the chat sent it.
    )
    # Other nodes store chats too. All use the same order, so they cannot deadlock.
    ordered = sorted(chats, key=lambda chat: (chat.channel, chat.workspace, chat.chat))
    await words.add(
        [(one.id, _words(one, message)) for one, message in decoded],
        [*map(person_statement, people), *map(chat_statement, ordered)],
    )


def _decoded(message: UnindexedMessage) -> InboundMessage | None:
    """Return a message under its current key; None if the row is damaged, which is reported elsewhere."""
    try:
        return replace(decode_inbound(message.body), key=message.key)
    except ValueError:
        return None


def _words(row: UnindexedMessage, message: InboundMessage | None) -> str:
    if message is None:
        return words_of(row.key, "", [])
    sender = message.sender
    names = [sender.name, sender.user_id, message.chat_title, message.topic_title]
    return words_of(row.key, sender.user_id, [message.text, *names])


def _people_of(rows: Iterable[tuple[UnindexedMessage, InboundMessage]]) -> list[KnownPerson]:
    """Return the authors of messages, which are sorted oldest first. Messages of schedules and hooks have no author."""
    found: dict[str, KnownPerson] = {}
    for row, message in rows:
        if message.origin:
            continue
        name = global_user_id(message)
        earlier = found.get(name)
        found[name] = KnownPerson(
            id=name,
            channel=row.key.channel,
            workspace=row.key.workspace,
            user_id=message.sender.user_id,
            name=message.sender.name or (earlier.name if earlier else ""),
            kind=message.sender.kind,
            messages=1 + (earlier.messages if earlier else 0),
            received_at=row.received_at,
        )
    return [found[name] for name in sorted(found)]
