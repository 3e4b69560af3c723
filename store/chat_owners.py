"""Which node works on which chat, where several share a PostgreSQL database.

A chat has an owner from its first message on: the node that runs its turns and sends to it. Only the owner itself gives
a chat up; a node that is ended has none any more, whatever the table says. So an owner need not look its own chats up
again: whoever takes one away has ended this process before. On SQLite every chat is the one node's, and nothing is
stored.
"""

import json
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from store.conversations import ConversationKey, current_key_in, key_from_row, key_params
from store.database import Database
from store.nodes import preferred_node
from store.transaction import Params, Transaction

MAX_KNOWN = 50_000
"""Own chats that are kept in memory; others are looked up again."""

MAX_CLAIMS = 32
"""Chats that are claimed in one transaction."""

LIVES = "EXISTS (SELECT 1 FROM node WHERE number = chat_owner.node AND ended_at IS NULL)"
"""Condition on a row of chat_owner: its node was not ended."""

_CLAIM = f"""
INSERT INTO chat_owner (channel, workspace, chat, node) VALUES (:channel, :workspace, :chat, :node)
ON CONFLICT (channel, workspace, chat)
DO UPDATE SET node = CASE WHEN {LIVES} THEN chat_owner.node ELSE excluded.node END
RETURNING node
"""  # noqa: S608 - statements of this module only
_FIND = f"""
SELECT node FROM chat_owner
WHERE channel = :channel AND workspace = :workspace AND chat = :chat AND {LIVES}
"""  # noqa: S608 - statements of this module only
_FIND_LOCKED = f"{_FIND.rstrip()} /* FOR UPDATE OF chat_owner */"
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
_OPEN_ROWS = """
SELECT inbox.id, channel, workspace, chat, '' AS topic
FROM inbox JOIN conversation ON conversation.id = inbox.conversation_id JOIN chat_owner USING (channel, workspace, chat)
WHERE inbox.state IN ('new', 'running') AND inbox.id > :inbox_id AND chat_owner.node = :node
"""
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
    """A place in the journal: a search looks at the rows behind it. The IDs of the last rows before it; 0 = none.

    A snapshot that somebody holds open keeps the index entries of all rows that were finished since, and a search of
    everything passes them.
    """

    inbox_id: int = 0
    outbox_id: int = 0


EVERYTHING = WorkMark()


class ChatOwners:
    """The chat_owner table. A chat is named by the key of any of its conversations.

    Attributes:
        is_shared: Several nodes may use the database: it is PostgreSQL.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._nodes = database.nodes
        self.is_shared = database.nodes.number != 0
        self._own: dict[ConversationKey, None] = {}
        self._given_up = 0

    @property
    def number(self) -> int:
        """The number of this node."""
        return self._nodes.number

    @property
    def given_up(self) -> int:
        """How often this node gave chats up: what was looked up before the last time may not hold any more."""
        return self._given_up

    def is_own(self, key: ConversationKey) -> bool:
        """Whether a chat is known to be this node's. False = it is to be looked up. Costs nothing."""
        return not self.is_shared or _chat(key) in self._own

    def prefers(self, key: ConversationKey) -> bool:
        """Whether a chat that nobody owns should be this node's, as far as it knows the others."""
        return self.preferred(key) == self.number

    def preferred(self, key: ConversationKey) -> int:
        """Return the node that should get a chat that nobody owns, as far as this one knows the others."""
        chat = _chat(key)
        name = "\0".join((chat.channel, chat.workspace, chat.chat))
        return preferred_node(self._nodes.living, name, otherwise=self.number)

    def claim_in(self, tx: Transaction, key: ConversationKey) -> int:
        """Return the node that owns a chat; one that nobody owns gets an owner. For other stores' transactions.

        The first statements of a transaction: the row of a chat that is not known as this node's stays locked.
        On PostgreSQL, units with `order=chat_order(key)` call it.
        """
        if not self.is_shared:
            return self.number
        chat = _chat(current_key_in(tx, key))
        if chat == _chat(key) and chat in self._own:
            # Nothing of the chat is given up meanwhile: see `give_up_strays`.
            return self.number
        params: Params = {**key_params(chat), "node": self.preferred(chat)}
        # A row that stays as it is gets no new version, which a snapshot that somebody holds open would keep.
        rows = tx.run(_FIND_LOCKED, key_params(chat)) or tx.run(_CLAIM, params)
        return int(rows[0]["node"])

    async def claim(self, key: ConversationKey) -> int:
        """Return the node that owns a chat; one that nobody owns gets an owner. Raises StoreError."""
        if self.is_own(key):
            return self.number
        since = self._given_up
        owner = await self._database.transaction(lambda tx: self.claim_in(tx, key))
        if owner == self.number:
            self.remember(key, since=since)
        return owner

    async def find(self, key: ConversationKey) -> int | None:
        """Return the node that owns a chat; None = nobody. Raises StoreError."""
        if self.is_own(key):
            return self.number
        rows = await self._database.read(_FIND, key_params(key))
        return int(rows[0]["node"]) if rows else None

    def remember(self, key: ConversationKey, *, since: int) -> None:
        """Note that a chat is this node's: a committed transaction said so.

        `since`: `given_up` before that transaction. If chats were given up meanwhile, this one may be among them, so
        it is looked up again.
        """
        if not self.is_shared or since != self._given_up:
            return
        self._own[_chat(key)] = None
        if len(self._own) > MAX_KNOWN:
            self._own.pop(next(iter(self._own)), None)

    def signal(self, owner: int, key: ConversationKey, *, is_delivery: bool = False) -> None:
        """Let the owner of a chat look at it: a message was accepted, or there are deliveries of a conversation."""
        topic = key.topic if is_delivery else None
        payload = json.dumps([key.channel, key.workspace, key.chat, topic], ensure_ascii=False)
        self._database.signals.publish(f"chats:{owner}", payload)

    def signal_gap(self) -> None:
        """Signal "" to this node."""
        self._database.signals.publish(f"chats:{self.number}")

    def listen(self) -> AbstractContextManager[AsyncIterator[str]]:
        """Receive what other nodes signal to this one (`parse_signal`); "" = some signals may have been lost."""
        return self._database.signals.subscribe(f"chats:{self.number}")

    async def find_mark(self) -> WorkMark:
        """Return the place behind the newest rows. Raises StoreError."""
        row = (await self._database.read(_NEWEST))[0]
        return WorkMark(int(row["inbox_id"]), int(row["outbox_id"]))

    async def list_orphans(self, mark: WorkMark = EVERYTHING) -> list[ConversationKey]:
        """Return the chats that have unfinished messages or open deliveries, and no owner. Raises StoreError."""
        params: Params = {"inbox_id": mark.inbox_id, "outbox_id": mark.outbox_id}
        return [key_from_row(row) for row in await self._database.read(_ORPHANS, params)]

    async def take(self, chats: Iterable[ConversationKey]) -> list[ConversationKey]:
        """Own those of some chats, up to `MAX_CLAIMS`, that nobody owns by now; return them. Raises StoreError."""
        # In one order in every node: two of them that take the same chats wait for each other only once.
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

    async def list_open_rows(
        self, mark: WorkMark = EVERYTHING
    ) -> list[tuple[int, ConversationKey]]:
        """Return the unfinished inbox rows of this node's chats: their ids and chats. Raises StoreError."""
        params: Params = {"node": self.number, "inbox_id": mark.inbox_id}
        rows = await self._database.read(_OPEN_ROWS, params)
        return [(int(row["id"]), key_from_row(row)) for row in rows]

    def forget(self, chats: Collection[ConversationKey]) -> None:
        """Look some chats up again before they count as this node's."""
        for chat in chats:
            self._own.pop(_chat(chat), None)

    async def give_up(self, chats: Collection[ConversationKey]) -> None:
        """Own some chats no more. Nothing may be going on in them here. Raises StoreError."""
        mine: Params = {"node": self.number}

        def work(tx: Transaction) -> None:
            for chat in chats:
                tx.run(_GIVE_UP, {**key_params(_chat(chat)), **mine})

        with self._giving_up(chats):
            await self._database.transaction(work)

    def list_strays(self) -> list[ConversationKey]:
        """Return the known chats of this node that another node should have. Reads no database."""
        return [chat for chat in list(self._own) if not self.prefers(chat)]

    async def give_up_strays(self, strays: Iterable[ConversationKey]) -> None:
        """Let other nodes have those of some chats in which nothing waits. Raises StoreError."""
        for chat in strays:
            params: Params = {**key_params(chat), "node": self.number}
            unit = partial(self._give_up_idle, chat, params)
            # No message of the chat is being accepted by this process meanwhile; the next one asks who owns it.
            with self._giving_up([chat]):
                await self._database.transaction(unit, order=chat_order(chat))

    async def give_up_idle(self) -> None:
        """Own no chat any more in which nothing waits. No message may be being accepted here. Raises StoreError."""
        mine: Params = {"node": self.number}
        with self._giving_up(list(self._own)):
            await self._database.transaction(lambda tx: tx.run(_GIVE_UP_ALL_IDLE, mine))
            self._own.clear()

    @contextmanager
    def _giving_up(self, chats: Collection[ConversationKey]) -> Iterator[None]:
        """Look some chats up again from now on, and once more after the block: it may have given them up."""
        self.forget(chats)
        try:
            yield
        finally:
            # What was looked up inside the block either comes before this, or is not remembered.
            self._given_up += 1
            self.forget(chats)

    def _give_up_idle(self, chat: ConversationKey, params: Params, tx: Transaction) -> None:
        self.forget([chat])
        # First the lock: what another node was just accepting is seen by the next statement.
        tx.run(_LOCK, params)
        tx.run(_GIVE_UP_IDLE, params)


def parse_signal(payload: str) -> tuple[ConversationKey, bool]:
    """Return the conversation or chat of a signal, and whether it is about deliveries.

    >>> parse_signal('["telegram", "1", "5", null]')[1]
    False
    """
    channel, workspace, chat, topic = json.loads(payload)
    key = ConversationKey(channel=channel, workspace=workspace, chat=chat, topic=topic or "")
    return key, topic is not None


def chat_order(key: ConversationKey) -> str:
    """Return what orders the units of a chat's messages (`Database.transaction`)."""
    return f"{key.channel}/{key.workspace}/{key.chat}"


def _chat(key: ConversationKey) -> ConversationKey:
    return replace(key, topic="") if key.topic else key
