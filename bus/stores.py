"""The journal's stores that the bus works with."""

from dataclasses import dataclass

from bus.platform import Clock
from store.chat_migrations import ChatMigrationStore
from store.conversation_settings import ConversationSettingsStore
from store.conversations import ConversationStore
from store.database import Database
from store.inbox import InboxStore
from store.message_history import MessageHistoryStore
from store.message_topics import MessageTopicStore
from store.outbox import OutboxStore
from store.pairings import PairingStore


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStores:
    """One store for each table of the journal."""

    inbox: InboxStore
    outbox: OutboxStore
    conversations: ConversationStore
    topics: MessageTopicStore
    history: MessageHistoryStore
    settings: ConversationSettingsStore
    pairings: PairingStore
    migrations: ChatMigrationStore

    @classmethod
    def from_database(cls, database: Database, *, now: Clock) -> "JournalStores":
        """Return the stores of an open database."""
        return cls(
            inbox=InboxStore(database, now=now),
            outbox=OutboxStore(database, now=now),
            conversations=ConversationStore(database, now=now),
            topics=MessageTopicStore(database, now=now),
            history=MessageHistoryStore(database),
            settings=ConversationSettingsStore(database, now=now),
            pairings=PairingStore(database, now=now),
            migrations=ChatMigrationStore(database),
        )
