"""Chat owners: which node works on which chat.

A chat has an owner from its first message on: the node that runs its turns and sends its replies. Only the owner can
give up a chat. A node that was ended owns no chats, whatever the table says. An owner does not have to look up its own
chats again, because another node must end the owner's process before it can take one of them.
"""

import json
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from typing_extensions import override

from store.conversations import ConversationKey, current_key_in, key_from_row, key_params
from store.database import Database
from store.nodes import preferred_node
from store.transaction import Params, Transaction

MAX_KNOWN = 50_000
"""Maximum number of this node's chats to remember. The others are looked up again."""

MAX_CLAIMS = 32
"""Maximum number of chats to claim in one transaction."""

LIVES = "EXISTS (SELECT 1 FROM node WHERE number = chat_owner.node AND ended_at IS NULL)"
"""Condition on a row of chat_owner: its node has not been ended."""

OWNS = """(:node = 0 OR EXISTS (
    SELECT 1 FROM chat_owner WHERE chat_owner.channel = conversation.channel
    AND chat_owner.workspace = conversation.workspace AND chat_owner.chat = conversation.chat
    AND chat_owner.node = :node))"""
"""Condition on a row of conversation: node `:node` works on its chat. Node 0 (SQLite) works on all chats."""

_CLAIM = f"""
INSERT INTO chat_owner (channel, workspace, chat, node) VALUES (:channel, :workspace, :chat, :node)
ON CONFLICT (channel, workspace, chat)
DO UPDATE SET node = CASE WHEN {LIVES} THEN chat_owner.node ELSE excluded.node END
RETURNING node
"""  # noqa: S608 - statements of this module only
_FIND_LOCKED = f"""
SELECT node FROM chat_owner
WHERE channel = :channel AND workspace = :workspace AND chat = :chat AND {LIVES} /* FOR UPDATE OF chat_owner */
"""  # noqa: S608 - statements of this module only
_NEWEST = """
SELECT coalesce((SELECT max(id) FROM inbox), 0) AS inbox_id, coalesce((SELECT max(id) FROM outbox), 0) AS outbox_id
"""
_HAVE_WORK = """
SELECT DISTINCT channel, workspace, chat, '' AS topic FROM conversation WHERE id IN (
    SELECT conversation_id FROM inbox WHERE state IN ('new', 'running') AND id > :inbox_id
    UNION ALL SELECT conversation_id FROM outbox WHERE state IN ('pending', 'sending') AND id > :outbox_id)
"""
_ORPHANS = f"""
SELECT channel, workspace, chat, topic FROM ({_HAVE_WORK}) AS found
WHERE NOT EXISTS (
    SELECT 1 FROM chat_owner WHERE chat_owner.channel = found.channel AND chat_owner.workspace = found.workspace
    AND chat_owner.chat = found.chat AND {LIVES})
"""  # noqa: S608 - statements of this module only
_GIVE_UP = """
DELETE FROM chat_owner
WHERE channel = :channel AND workspace = :workspace AND chat = :chat AND node = :node
"""
_LOCK = """
SELECT node FROM chat_owner
WHERE channel = :channel AND workspace = :workspace AND chat = :chat AND node = :node
/* FOR UPDATE */
"""
_IS_IDLE = """
NOT EXISTS (
    SELECT 1 FROM conversation
    WHERE conversation.channel = chat_owner.channel AND conversation.workspace = chat_owner.workspace
    AND conversation.chat = chat_owner.chat AND (
        EXISTS (SELECT 1 FROM inbox WHERE conversation_id = conversation.id AND state IN ('new', 'running'))
        OR EXISTS (SELECT 1 FROM outbox WHERE conversation_id = conversation.id AND state IN ('pending', 'sending'))))
"""
_GIVE_UP_IDLE = f"{_GIVE_UP} AND {_IS_IDLE}"
_GIVE_UP_ALL_IDLE = f"DELETE FROM chat_owner WHERE node = :node AND {_IS_IDLE}"  # noqa: S608 - of this module only


@dataclass(frozen=True, slots=True)
class WorkMark:
    """Where a search for work continues: after these IDs of the inbox and the outbox; 0 = at the beginning.

    While a client holds a snapshot open, PostgreSQL keeps the index entries of finished rows. A search from the
    beginning would read all of them.
    """

    inbox_id: int = 0
    outbox_id: int = 0


EVERYTHING = WorkMark()


class ChatOwners(Protocol):
    """The owners of chats, as this process knows them. To name a chat, pass the key of any of its conversations.

    Attributes:
        search_s: How often to search for work that no node is doing, seconds.
    """

    search_s: float

    @property
    def number(self) -> int:
        """The number of this node."""
        ...

    @property
    def given_up(self) -> int:
        """How many times this node has given up chats. An owner looked up before the last time may be wrong."""
        ...

    def is_own(self, key: ConversationKey) -> bool:
        """Whether this node knows that it owns a chat. False = look it up. Cheap."""
        ...

    def prefers(self, key: ConversationKey) -> bool:
        """Whether this node should take a chat without an owner, judging by the nodes it knows."""
        ...

    def claim_in(self, tx: Transaction, key: ConversationKey) -> int:
        """Return the owner of a chat, and assign one if it has none. For other stores' transactions.

        `key` must contain the chat's current ID. The chat's row stays locked.
        """
        ...

    async def claim(self, key: ConversationKey) -> int:
        """Return the owner of a chat, and assign one if it has none. Raises StoreError."""
        ...

    def remember(self, key: ConversationKey, *, since: int) -> None:
        """Remember that this node owns a chat, as a committed transaction found.

        `since`: the value of `given_up` before that transaction. If this node has given up chats since then, this chat
        may be one of them, so it is not remembered.
        """
        ...

    def forget(self, chats: Collection[ConversationKey]) -> None:
        """Forget that this node owns these chats, so that they are looked up again."""
        ...

    def signal(self, owner: int, key: ConversationKey, *, is_delivery: bool = False) -> None:
        """Signal the owner of a chat that it has a new message, or that a conversation has deliveries."""
        ...

    def signal_gap(self) -> None:
        """Signal "" to this node: some signals may have been lost."""
        ...

    def listen(self) -> AbstractContextManager[AsyncIterator[str]]:
        """Receive signals from other nodes (`parse_signal`); "" = some may have been lost."""
        ...

    async def find_mark(self) -> WorkMark:
        """Return the position after the newest rows. Raises StoreError."""
        ...

    async def list_orphans(self, mark: WorkMark = EVERYTHING) -> list[ConversationKey]:
        """Return chats with unfinished messages or open deliveries and without an owner. Raises StoreError."""
        ...

    async def take(self, chats: Iterable[ConversationKey]) -> list[ConversationKey]:
        """Take the given chats that still have no owner, at most `MAX_CLAIMS`, and return them. Raises StoreError."""
        ...

    async def give_up(self, chats: Collection[ConversationKey]) -> None:
        """Give up the given chats that have no work for this node. Raises StoreError."""
        ...

    def list_strays(self) -> list[ConversationKey]:
        """Return the known chats of this node that another node should have. Does not read the database."""
        ...

    async def give_up_strays(self, strays: Iterable[ConversationKey]) -> None:
        """Give up the stray chats that have no work waiting. Raises StoreError."""
        ...

    async def give_up_idle(self) -> None:
        """Give up all chats that have no work waiting.

        Call it only after this node has stopped accepting messages. Raises StoreError.
        """
        ...


def owners_of(database: Database) -> ChatOwners:
    """Return the owners of the chats of a database."""
    return SharedOwners(database) if database.nodes.number else SoleOwner(database)


class SoleOwner(ChatOwners):
    """The only process of a SQLite file. It owns every chat, so nothing is stored."""

    search_s = 7.5
    """Work is forgotten only if the disk fails right after a commit, so search rarely."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    @override
    def number(self) -> int:
        return 0

    @property
    @override
    def given_up(self) -> int:
        return 0

    @override
    def is_own(self, key: ConversationKey) -> bool:
        return True

    @override
    def prefers(self, key: ConversationKey) -> bool:
        return True

    @override
    def claim_in(self, tx: Transaction, key: ConversationKey) -> int:
        return 0

    @override
    async def claim(self, key: ConversationKey) -> int:
        return 0

    @override
    def remember(self, key: ConversationKey, *, since: int) -> None:
        return

    @override
    def forget(self, chats: Collection[ConversationKey]) -> None:
        return

    @override
    def signal(self, owner: int, key: ConversationKey, *, is_delivery: bool = False) -> None:
        return

    @override
    def signal_gap(self) -> None:
        return

    @override
    def listen(self) -> AbstractContextManager[AsyncIterator[str]]:
        return self._database.signals.subscribe("chats:0")

    @override
    async def find_mark(self) -> WorkMark:
        return EVERYTHING

    @override
    async def list_orphans(self, mark: WorkMark = EVERYTHING) -> list[ConversationKey]:
        return []

    @override
    async def take(self, chats: Iterable[ConversationKey]) -> list[ConversationKey]:
        return []

    @override
    async def give_up(self, chats: Collection[ConversationKey]) -> None:
        return

    @override
    def list_strays(self) -> list[ConversationKey]:
        return []

    @override
    async def give_up_strays(self, strays: Iterable[ConversationKey]) -> None:
        return

    @override
    async def give_up_idle(self) -> None:
        return


class SharedOwners(ChatOwners):
    """The chat_owner table, for the nodes that share a PostgreSQL database."""

    search_s = 0.5

    def __init__(self, database: Database) -> None:
        self._database = database
        self._nodes = database.nodes
        self._own: dict[ConversationKey, None] = {}
        self._given_up = 0

    @property
    @override
    def number(self) -> int:
        return self._nodes.number

    @property
    @override
    def given_up(self) -> int:
        return self._given_up

    @override
    def is_own(self, key: ConversationKey) -> bool:
        return _chat(key) in self._own

    @override
    def prefers(self, key: ConversationKey) -> bool:
        return self._preferred(key) == self.number

    @override
    def claim_in(self, tx: Transaction, key: ConversationKey) -> int:
        params: Params = {**key_params(key), "node": self._preferred(key)}
        # First look for an existing row. An update would create a new version of the row, which PostgreSQL would keep
        # for an open snapshot.
        rows = tx.run(_FIND_LOCKED, params) or tx.run(_CLAIM, params)
        return int(rows[0]["node"])

    @override
    async def claim(self, key: ConversationKey) -> int:
        if self.is_own(key):
            return self.number
        since = self._given_up
        owner = await self._database.transaction(
            lambda tx: self.claim_in(tx, current_key_in(tx, key))
        )
        if owner == self.number:
            self.remember(key, since=since)
        return owner

    @override
    def remember(self, key: ConversationKey, *, since: int) -> None:
        if since != self._given_up:
            return
        self._own[_chat(key)] = None
        if len(self._own) > MAX_KNOWN:
            self._own.pop(next(iter(self._own)), None)

    @override
    def signal(self, owner: int, key: ConversationKey, *, is_delivery: bool = False) -> None:
        topic = key.topic if is_delivery else None
        payload = json.dumps([key.channel, key.workspace, key.chat, topic], ensure_ascii=False)
        self._database.signals.publish(f"chats:{owner}", payload)

    @override
    def signal_gap(self) -> None:
        self._database.signals.publish(f"chats:{self.number}")

    @override
    def listen(self) -> AbstractContextManager[AsyncIterator[str]]:
        return self._database.signals.subscribe(f"chats:{self.number}")

    @override
    async def find_mark(self) -> WorkMark:
        row = (await self._database.read(_NEWEST))[0]
        return WorkMark(int(row["inbox_id"]), int(row["outbox_id"]))

    @override
    async def list_orphans(self, mark: WorkMark = EVERYTHING) -> list[ConversationKey]:
        params: Params = {"inbox_id": mark.inbox_id, "outbox_id": mark.outbox_id}
        return [key_from_row(row) for row in await self._database.read(_ORPHANS, params)]

    @override
    async def take(self, chats: Iterable[ConversationKey]) -> list[ConversationKey]:
        # All nodes use the same order, so two nodes that take the same chats cannot deadlock.
        wanted = sorted(map(_chat, chats), key=lambda key: (key.channel, key.workspace, key.chat))

        def work(tx: Transaction) -> list[ConversationKey]:
            mine: Params = {"node": self.number}
            claims = [(chat, tx.run(_CLAIM, {**key_params(chat), **mine})) for chat in wanted]
            return [chat for chat, rows in claims if rows[0]["node"] == self.number]

        since = self._given_up
        taken = await self._database.transaction(work)
        for chat in taken:
            self.remember(chat, since=since)
        return taken

    @override
    def forget(self, chats: Collection[ConversationKey]) -> None:
        for chat in chats:
            self._own.pop(_chat(chat), None)

    @override
    async def give_up(self, chats: Collection[ConversationKey]) -> None:
        mine: Params = {"node": self.number}

        def work(tx: Transaction) -> None:
            for chat in chats:
                tx.run(_GIVE_UP, {**key_params(_chat(chat)), **mine})

        with self._giving_up(chats):
            await self._database.transaction(work)

    @override
    def list_strays(self) -> list[ConversationKey]:
        return [chat for chat in list(self._own) if not self.prefers(chat)]

    @override
    async def give_up_strays(self, strays: Iterable[ConversationKey]) -> None:
        for chat in strays:
            params: Params = {**key_params(chat), "node": self.number}
            unit = partial(self._give_up_idle, chat, params)
            # Meanwhile this process accepts no messages from the chat. The next message looks up the owner.
            with self._giving_up([chat]):
                await self._database.transaction(unit, order=chat_order(chat))

    @override
    async def give_up_idle(self) -> None:
        mine: Params = {"node": self.number}
        with self._giving_up(list(self._own)):
            await self._database.transaction(lambda tx: tx.run(_GIVE_UP_ALL_IDLE, mine))
            self._own.clear()

    def _preferred(self, key: ConversationKey) -> int:
        """Return the node that should take a chat without an owner, judging by the nodes that this one knows."""
        chat = _chat(key)
        name = "\0".join((chat.channel, chat.workspace, chat.chat))
        return preferred_node(self._nodes.living, name, otherwise=self.number)

    @contextmanager
    def _giving_up(self, chats: Collection[ConversationKey]) -> Iterator[None]:
        """Forget chats before and after the block, which may give them up."""
        self.forget(chats)
        try:
            yield
        finally:
            # Owners that were looked up before this point are forgotten now or not remembered later.
            self._given_up += 1
            self.forget(chats)

    def _give_up_idle(self, chat: ConversationKey, params: Params, tx: Transaction) -> None:
        self.forget([chat])
        # Lock first, so that the next statement sees messages that another node has just accepted.
        tx.run(_LOCK, params)
        tx.run(_GIVE_UP_IDLE, params)


def parse_signal(payload: str) -> tuple[ConversationKey, bool]:
    """Return the conversation or chat of a signal, and whether it concerns deliveries.

    >>> parse_signal('["telegram", "1", "5", null]')[1]
    False
    """
    channel, workspace, chat, topic = json.loads(payload)
    key = ConversationKey(channel=channel, workspace=workspace, chat=chat, topic=topic or "")
    return key, topic is not None


def chat_order(key: ConversationKey) -> str:
    """Return the `order` of the units of work for a chat's messages (`Database.transaction`)."""
    return f"{key.channel}/{key.workspace}/{key.chat}"


def _chat(key: ConversationKey) -> ConversationKey:
    return replace(key, topic="") if key.topic else key
