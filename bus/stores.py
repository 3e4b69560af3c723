"""The journal's stores that the bus uses."""

from dataclasses import dataclass

from bus.platform import Clock
from store.chat_migrations import ChatMigrationStore
from store.chat_owners import ChatOwners, owners_of
from store.chats import ChatStore
from store.conversation_settings import ConversationSettingsStore
from store.conversations import ConversationStore
from store.database import Database
from store.discarded_deliveries import DiscardedDeliveries
from store.inbox import InboxStore
from store.message_history import MessageHistoryStore
from store.message_topics import MessageTopicStore
from store.message_words import MessageWords
from store.notifications import NotificationStore
from store.outbox import OutboxStore
from store.pairings import PairingStore
from store.people import PeopleStore
from store.refused_messages import RefusedMessages
from store.schedules import ScheduleStore
from store.takeovers import TakeoverStore


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStores:
    """One store for each table of the journal."""

    owners: ChatOwners
    inbox: InboxStore
    outbox: OutboxStore
    discarded: DiscardedDeliveries
    conversations: ConversationStore
    topics: MessageTopicStore
    history: MessageHistoryStore
    settings: ConversationSettingsStore
    pairings: PairingStore
    migrations: ChatMigrationStore
    chats: ChatStore
    notifications: NotificationStore
    schedules: ScheduleStore
    refused: RefusedMessages
    words: MessageWords
    takeovers: TakeoverStore
    people: PeopleStore

    @classmethod
    def from_database(cls, database: Database, *, now: Clock) -> "JournalStores":
        """Return the stores of an open database."""
        owners = owners_of(database)
        return cls(
            owners=owners,
            inbox=InboxStore(database, owners=owners, now=now),
            outbox=OutboxStore(database, owners=owners, now=now),
            discarded=DiscardedDeliveries(database),
            conversations=ConversationStore(database, now=now),
            topics=MessageTopicStore(database, now=now),
            history=MessageHistoryStore(database),
            settings=ConversationSettingsStore(database, now=now),
            pairings=PairingStore(database, now=now),
            migrations=ChatMigrationStore(database),
            chats=ChatStore(database),
            notifications=NotificationStore(database),
            schedules=ScheduleStore(database),
            refused=RefusedMessages(database),
            words=MessageWords(database),
            takeovers=TakeoverStore(database),
            people=PeopleStore(database),
        )
