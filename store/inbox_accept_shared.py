"""Accepting a message in one trip to PostgreSQL: what store/inbox_accept.py does, as a function of the schema."""

import json
from dataclasses import replace
from functools import partial

from store.chat_owners import ChatOwners, chat_order
from store.conversations import ConversationKey
from store.database import Database
from store.inbox_rows import DuplicateMessage, InboxRow, NewInboxRow, TurnStart
from store.transaction import Params, Row

_ACCEPT = """
SELECT * FROM parley_accept(:channel, :workspace, :chat, :topic, :event_id, :message_id, :kind, :body, :received_at,
    :replies_to, :remember, :may_start, :cap, :node, :preferred, :conversation_id, :open_from)
"""
MAX_KNOWN = 10_000
"""Conversations of which is known where their unfinished messages begin."""


class SharedAcceptance:
    """Accepts messages where several nodes share the database.

    It remembers of each conversation, by the key that its messages come with, its id, and a place in its order before
    which no message is unfinished: a finished one never is again.
    """

    def __init__(self, database: Database, owners: ChatOwners) -> None:
        self._database = database
        self._owners = owners
        self._open_from: dict[ConversationKey, tuple[int, int]] = {}

    async def accept(self, new: NewInboxRow, cap: int) -> InboxRow | DuplicateMessage | None:
        """Store a message; start its turn, if it may start and its chat is this node's.

        None, and nothing was stored, where the unit of `store.inbox_accept` is to decide: its queue is full, or its
        chat has another id now. Raises StoreUnavailable.
        """
        if cap == 0:
            return None
        # Parameters are made when it is its turn, not earlier: what was done before in this order may have given the
        # chat up.
        params = partial(self._params, new, cap)
        rows = await self._database.execute(_ACCEPT, params, order=chat_order(new.key))
        match rows[0]["outcome"]:
            case "accepted":
                self._remember(new.key, rows[0])
                return _row(new, rows[0])
            case "duplicate":
                return DuplicateMessage()
            case _:
                return None

    def _params(self, new: NewInboxRow, cap: int) -> Params:
        key, owners = new.key, self._owners
        conversation_id, open_from = self._open_from.get(key, (0, 0))
        return {
            "channel": key.channel,
            "workspace": key.workspace,
            "chat": key.chat,
            "topic": key.topic,
            "event_id": new.event_id,
            "message_id": new.message_id,
            "kind": new.kind,
            "body": new.body,
            "received_at": new.received_at,
            # JSON in PostgreSQL has no NUL; its text has U+FFFD instead.
            "replies_to": json.dumps([one.replace("\0", "\ufffd") for one in new.replies_to]),
            "remember": new.remember,
            "may_start": new.may_start,
            "cap": cap,
            "node": owners.number,
            "preferred": None if owners.is_own(key) else owners.preferred(key),
            "conversation_id": conversation_id,
            "open_from": open_from,
        }

    def _remember(self, key: ConversationKey, row: Row) -> None:
        self._open_from.pop(key, None)
        self._open_from[key] = row["in_conversation"], row["open_from"]
        if len(self._open_from) > MAX_KNOWN:
            del self._open_from[next(iter(self._open_from))]


def _row(new: NewInboxRow, row: Row) -> InboxRow:
    start = None
    if row["is_started"]:
        start = TurnStart(
            thread_id=row["bound_thread_id"],
            follows_question=row["follows_question"],
            has_new_thread=row["has_new_thread"],
        )
    key, topic = new.key, row["found_topic"]
    earlier = row["earlier_ids"]
    return InboxRow(
        id=row["accepted_id"],
        conversation_id=row["in_conversation"],
        seq=row["place"],
        key=key if topic == key.topic else replace(key, topic=topic),
        event_id=new.event_id,
        kind=new.kind,
        body=new.body,
        state="new" if start is None else "running",
        attempts=0 if start is None else 1,
        thread_id=None if start is None else row["bound_thread_id"],
        run_id=None,
        received_at=new.received_at,
        current_thread_id=row["bound_thread_id"],
        start=start,
        owner=row["owner_node"],
        earlier_ids=frozenset(map(int, earlier.split(","))) if earlier else frozenset(),
    )
