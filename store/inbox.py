"""The inbox: messages accepted from the platforms, committed before they are acknowledged."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass

from store.chat_owners import EVERYTHING, OWNS, ChatOwners, WorkMark, chat_order, owners_of
from store.conversations import ConversationKey, key_from_row, key_params
from store.database import Database, Params, Transaction
from store.inbox_accept import (
    ANSWERED,
    SELECT_ROWS,
    DuplicateMessage,
    InboxKind,
    InboxRow,
    InboxState,
    NewInboxRow,
    QueueFull,
    TurnEnd,
    TurnOutcome,
    TurnStart,
    accept,
    inbox_row_from,
    refuse,
)
from store.outbox import (
    NEWEST,
    NewOutboxRow,
    insert_outbox_rows,
)

__all__ = [
    "DuplicateMessage",
    "InboxKind",
    "InboxRow",
    "InboxState",
    "InboxStore",
    "NewInboxRow",
    "QueueFull",
    "ThreadSpan",
    "TurnEnd",
    "TurnOutcome",
    "TurnStart",
]

_UNFINISHED = f"""{SELECT_ROWS}
WHERE inbox.state IN ('new', 'running') ORDER BY inbox.conversation_id, inbox.seq
"""
_UNFINISHED_OWN = f"""{SELECT_ROWS}
WHERE inbox.state IN ('new', 'running') AND {OWNS}
AND channel = :channel AND workspace = :workspace AND chat = :chat
ORDER BY inbox.conversation_id, inbox.seq
"""
_OPEN_OWN = f"""
SELECT inbox.id, channel, workspace, chat, '' AS topic
FROM inbox JOIN conversation ON conversation.id = inbox.conversation_id
WHERE inbox.state IN ('new', 'running') AND inbox.id > :inbox_id AND {OWNS}
"""  # noqa: S608 - statements of the store only
_COUNT_UNFINISHED = """
SELECT state, count(*) AS rows FROM inbox WHERE state IN ('new', 'running') GROUP BY state
"""
_RECENT = f"{SELECT_ROWS} WHERE inbox.id < :before ORDER BY inbox.id DESC LIMIT :limit"
_RUNNING_OF_THREAD = f"""{SELECT_ROWS}
WHERE inbox.state = 'running' AND inbox.state IN ('new', 'running') AND inbox.kind = 'chat'
AND inbox.thread_id = :thread_id LIMIT 1
"""
# Events of other systems are not written by a person.
_NEWEST_OF_CHAT = f"""{SELECT_ROWS}
WHERE channel = :channel AND chat = :chat AND (topic = :topic OR :topic = '') AND inbox.kind = 'chat'
AND inbox.event_id NOT LIKE 'hook:%'
ORDER BY inbox.id DESC LIMIT 1
"""
_SILENT = f"""{SELECT_ROWS}
WHERE outcome = 'silent' AND channel = :channel AND workspace = :workspace AND chat = :chat
ORDER BY inbox.id DESC LIMIT :limit
"""
_WITH_ORIGIN = f"""{SELECT_ROWS}
WHERE channel = :channel AND workspace = :workspace AND chat = :chat AND inbox.kind = 'chat'
AND (inbox.event_id LIKE 'schedule:%' OR inbox.event_id LIKE 'hook:%')
ORDER BY inbox.id DESC LIMIT :limit
"""
_COUNT_SILENT = """
SELECT count(*) AS rows FROM inbox JOIN conversation ON conversation.id = inbox.conversation_id
WHERE outcome = 'silent' AND channel = :channel
"""
_FIRST_OF_THREAD = """
SELECT seq, received_at FROM inbox WHERE conversation_id = :conversation_id AND thread_id = :thread_id
ORDER BY seq LIMIT 1
"""
_LAST_OF_THREAD = """
SELECT seq, received_at FROM inbox WHERE conversation_id = :conversation_id AND thread_id = :thread_id
ORDER BY seq DESC LIMIT 1
"""
# Commands and queued messages have no thread.
_OF_THREAD = f"""{SELECT_ROWS}
WHERE inbox.conversation_id = :conversation_id AND (inbox.thread_id = :thread_id OR inbox.thread_id IS NULL)
    AND inbox.seq >= :first AND inbox.seq <= :last AND inbox.seq < :before ORDER BY inbox.seq DESC LIMIT :limit
"""
_EVENT_IDS_OF_THREAD = """
SELECT event_id FROM inbox WHERE conversation_id = :conversation_id AND thread_id = :thread_id
"""
_MARK_RUNNING = """
UPDATE inbox SET state = 'running', starts = starts + 1, run_id = CASE WHEN state = 'running' THEN run_id END,
    thread_id = coalesce(thread_id, :thread_id, (
        SELECT conversation.thread_id FROM conversation WHERE conversation.id = inbox.conversation_id))
WHERE id = :id AND state NOT IN ('done', 'dead')
RETURNING thread_id
"""
# If a person took over the conversation while a message waited, its turn does not begin.
_TAKEN_OVER = """
SELECT inbox.state FROM inbox JOIN conversation ON conversation.id = inbox.conversation_id
WHERE inbox.id = :id AND inbox.state NOT IN ('done', 'dead') AND taken_over_by IS NOT NULL
"""
_LEAVE_TO_PERSON = """
UPDATE inbox SET state = 'done', outcome = 'taken_over', run_id = NULL,
    thread_id = coalesce(thread_id, :thread_id, (
        SELECT conversation.thread_id FROM conversation WHERE conversation.id = inbox.conversation_id))
WHERE id = :id AND state NOT IN ('running', 'done', 'dead')
"""
_HAS_EARLIER_QUESTION = """
SELECT 1 FROM inbox AS started JOIN inbox AS earlier
ON earlier.conversation_id = started.conversation_id AND earlier.seq < started.seq AND earlier.question IS NOT NULL
WHERE started.id = :id LIMIT 1
"""
_SET_RUN = "UPDATE inbox SET run_id = :run_id WHERE id = :id"
_UPDATE_BODY = (
    "UPDATE inbox SET body = :body WHERE id = :id AND state NOT IN ('done', 'dead') RETURNING id"
)
_SET_SPEECH = "UPDATE inbox SET speech = :speech WHERE id = :id"
_ASSIGN_THREAD = """
UPDATE inbox SET thread_id = :thread_id
WHERE conversation_id = (SELECT conversation_id FROM inbox WHERE id = :id)
AND state IN ('new', 'running') AND kind = 'chat' AND thread_id IS NULL
AND seq < (SELECT seq FROM inbox WHERE id = :id)
"""
_FINISH = """
UPDATE inbox SET state = :state, question = :question, outcome = :outcome, problem = :problem, signed_at = :signed_at
WHERE id = :id AND state NOT IN ('done', 'dead')
RETURNING conversation_id, kind, body
"""
# The run that they were injected into may have ended with its process before the turn ran again.
_SHARE_RUN = """
UPDATE inbox SET run_id = coalesce((SELECT own.run_id FROM inbox AS own WHERE own.id = :id), run_id)
WHERE id = :answered_id
"""
_RELEASE = """
UPDATE inbox SET run_id = NULL WHERE run_id = :run_id AND state = 'new'
AND conversation_id = (SELECT conversation_id FROM inbox WHERE id = :id)
"""
_DONE: Params = {
    "state": "done",
    "question": None,
    "outcome": None,
    "problem": None,
    "signed_at": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSpan:
    """Where the messages of a thread are in its conversation: positions, and times (Unix seconds). 0 = it has none."""

    conversation_id: int
    thread_id: str
    first: int
    last: int
    since: float
    until: float


MAX_KNOWN = 10_000
"""Maximum number of conversations whose first unfinished message is remembered."""

OffersFor = Callable[[int, str], Sequence[NewOutboxRow]]
"""Makes further outbox rows for a row that is being finished, from its ID and the body stored at that time.

Must not block.
"""

# Lock the conversation, so that its deliveries are committed in the order of their IDs. Readers rely on it.
_LOCK_CONVERSATION = """
SELECT id, channel, workspace, chat, topic FROM conversation WHERE id = :id /* FOR UPDATE */
"""


class InboxStore:
    """The inbox table, and the ids of received events and messages.

    Args:
        database: The database.
        owners: The node that owns each chat, as this process knows it.
        now: The wall clock.
    """

    def __init__(
        self,
        database: Database,
        *,
        owners: ChatOwners | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._owners = owners or owners_of(database)
        self._open_from: dict[int, int] = {}
        self._now = now

    @property
    def outage(self) -> str:
        """Why the database cannot be used now; "" while it can (see `Database.outage`)."""
        return self._database.outage

    async def accept(
        self,
        new: NewInboxRow,
        *,
        cap: int,
        notice: Callable[[QueueFull], NewOutboxRow] | None = None,
    ) -> InboxRow | DuplicateMessage | QueueFull:
        """Commit a message, once.

        One transaction checks the IDs, resolves the topic, takes the next position in the conversation, and inserts the
        row. If the row `may_start`, it also starts the turn, like `mark_running`; a conversation without a thread gets
        a new one. A chat without an owner gets one. The turn starts only if this node is the owner.

        Returns after the commit: only then may the adapter acknowledge the message. `cap` limits the chat rows in state
        new. `notice` returns the outbox row that reports a refusal, to insert in the same transaction. It must not
        block.
        """

        def work(tx: Transaction) -> InboxRow | DuplicateMessage | QueueFull:
            result = accept(tx, new, cap, owners=self._owners, open_from=self._open_from)
            if notice is not None and isinstance(result, QueueFull):
                insert_outbox_rows(tx, [notice(result)], now=new.received_at)
            return result

        since = self._owners.given_up
        result = await self._database.transaction(work, order=chat_order(new.key))
        if isinstance(result, InboxRow):
            self._remember_open(result)
            if result.owner == self._owners.number:
                self._owners.remember(new.key, since=since)
        return result

    async def refuse(
        self, new: NewInboxRow, *, notice: Callable[[ConversationKey], NewOutboxRow]
    ) -> ConversationKey | DuplicateMessage:
        """Commit, once, that a message was received and refused. Return its conversation.

        `notice` returns the outbox row that notifies the sender, to insert in the same transaction. It must not block.
        """

        def work(tx: Transaction) -> ConversationKey | DuplicateMessage:
            refused = refuse(tx, new)
            if not isinstance(refused, DuplicateMessage):
                insert_outbox_rows(tx, [notice(refused)], now=new.received_at)
            return refused

        return await self._database.transaction(work, order=chat_order(new.key))

    def _remember_open(self, row: InboxRow) -> None:
        """Remember where the unfinished messages of a conversation begin.

        While a client holds a snapshot open, PostgreSQL keeps the index entries of finished messages. A search from the
        first message would pass all of them.
        """
        self._open_from.pop(row.conversation_id, None)
        self._open_from[row.conversation_id] = row.open_from
        if len(self._open_from) > MAX_KNOWN:
            del self._open_from[next(iter(self._open_from))]

    async def mark_running(self, inbox_id: int, *, thread_id: str | None) -> TurnStart | None:
        """Record the start of a turn (state running, starts + 1). None if the row is already done or dead.

        If a person has taken over the conversation, a turn that has not begun does not begin: the row is marked done,
        and None is returned. For a turn that has begun, the result says `is_taken_over`.

        The turn uses the thread assigned to the row, else `thread_id`, else the conversation's current thread, which
        must then exist. The row keeps its run, unless it was only injected into that run.
        """

        def work(tx: Transaction) -> TurnStart | None:
            mine: Params = {"id": inbox_id, "thread_id": thread_id}
            taken_over = tx.run(_TAKEN_OVER, {"id": inbox_id})
            if taken_over and taken_over[0]["state"] == "new":
                tx.run(_LEAVE_TO_PERSON, mine)
                return None
            started, questions = tx.run_all([(_MARK_RUNNING, mine), (_HAS_EARLIER_QUESTION, mine)])
            if not started:
                return None
            found = str(started[0]["thread_id"])
            return TurnStart(
                thread_id=found,
                follows_question=bool(questions),
                is_taken_over=bool(taken_over),
            )

        return await self._database.transaction(work)

    async def set_run(self, inbox_id: int, run_id: str) -> None:
        """Store the run that answers the row."""
        params: Params = {"id": inbox_id, "run_id": run_id}
        await self._database.execute(_SET_RUN, params)

    async def update_body(self, inbox_id: int, body: str) -> bool:
        """Replace the encoded message of a row. False if the row is already done or dead."""
        params: Params = {"id": inbox_id, "body": body}
        return bool(await self._database.execute(_UPDATE_BODY, params))

    async def set_speech(
        self, inbox_id: int, speech: str, deliveries: Sequence[NewOutboxRow]
    ) -> None:
        """Store the transcripts of a row's recordings and insert the rows that show them, in one transaction."""
        now = self._now()
        params: Params = {"id": inbox_id, "speech": speech}

        def work(tx: Transaction) -> None:
            tx.run(_SET_SPEECH, params)
            insert_outbox_rows(tx, deliveries, now=now)

        await self._database.transaction(work)

    async def assign_thread(self, inbox_id: int, *, thread_id: str) -> None:
        """Assign the queued chat rows before a row in its conversation to the thread that is about to be replaced."""
        params: Params = {"id": inbox_id, "thread_id": thread_id}
        await self._database.transaction(lambda tx: tx.run(_ASSIGN_THREAD, params))

    async def finish(
        self,
        inbox_id: int,
        deliveries: Sequence[NewOutboxRow],
        *,
        dead: bool = False,
        question: str | None = None,
        end: TurnEnd = ANSWERED,
        answered_ids: Sequence[int] = (),
        released_run_id: str | None = None,
        offers: OffersFor | None = None,
    ) -> bool:
        """Mark a row done (or dead), store its question and insert its outbox rows, in one transaction.

        `end`: how its turn ended; a dead row has failed.
        `answered_ids`: rows that the same turn answered; they are marked done as well, and get its run.
        `released_run_id`: a run that no longer answers anything; queued rows that were injected into it lose it.
        `offers`: called for each finished row inside the transaction, because its body may just have been replaced.

        Returns False and writes nothing if the row is finished already. In that case, the caller must not send
        anything.
        """
        now = self._now()

        def work(tx: Transaction) -> bool:
            ending: Params = {
                "id": inbox_id,
                "state": "dead" if dead else "done",
                "question": question,
                "outcome": "failed" if dead else end.outcome,
                "problem": end.problem,
                "signed_at": end.signed_at,
            }
            known: dict[ConversationKey, int] = {}
            body = _finish(tx, ending, known)
            if body is None:
                return False
            bodies = {inbox_id: body}
            for other in answered_ids:
                ended = _finish(tx, {**_DONE, "id": other, "outcome": "joined"}, known)
                if ended is not None:
                    bodies[other] = ended
                    tx.run(_SHARE_RUN, {"id": inbox_id, "answered_id": other})
            if released_run_id is not None:
                tx.run(_RELEASE, {"id": inbox_id, "run_id": released_run_id})
            insert_outbox_rows(tx, deliveries, now=now, known=known)
            if offers is not None:
                late = [row for ended_id, body in bodies.items() for row in offers(ended_id, body)]
                insert_outbox_rows(tx, late, now=now, known=known)
            return True

        return await self._database.transaction(work)

    async def finish_command(
        self,
        inbox_id: int,
        deliveries: Sequence[NewOutboxRow],
        *,
        dead: bool = False,
    ) -> None:
        """Mark the row of a command done (or dead) and insert its outbox rows, unless it is finished already."""
        now = self._now()
        ending: Params = {**_DONE, "id": inbox_id}
        if dead:
            ending = {**ending, "state": "dead", "outcome": "failed"}

        def work(tx: Transaction) -> None:
            if _finish(tx, ending, {}) is not None:
                insert_outbox_rows(tx, deliveries, now=now)

        await self._database.transaction(work)

    async def list_unfinished(self) -> list[InboxRow]:
        """Return the rows in state new or running, by conversation and sequence."""
        return [inbox_row_from(row) for row in await self._database.read(_UNFINISHED)]

    async def list_own(self, chat: ConversationKey) -> list[InboxRow]:
        """Return the unfinished rows of a chat, by conversation and sequence, if this node owns the chat; else none.

        The result includes all messages of the chat that this process has begun to accept.
        """
        params: Params = {**key_params(chat), "node": self._owners.number}
        order, since = chat_order(chat), self._owners.given_up
        rows = await self._database.execute(_UNFINISHED_OWN, params, order=order)
        if rows:
            self._owners.remember(chat, since=since)
        return [inbox_row_from(row) for row in rows]

    async def list_open_own(self, mark: WorkMark = EVERYTHING) -> list[tuple[int, ConversationKey]]:
        """Return the ids and chats of the unfinished rows of this node's chats. Raises StoreError."""
        params: Params = {"node": self._owners.number, "inbox_id": mark.inbox_id}
        rows = await self._database.read(_OPEN_OWN, params)
        return [(int(row["id"]), key_from_row(row)) for row in rows]

    async def count_by_state(self) -> dict[str, int]:
        """Return the number of unfinished rows by state."""
        rows = await self._database.read(_COUNT_UNFINISHED)
        return {str(row["state"]): int(str(row["rows"])) for row in rows}

    async def list_silent(self, chat: ConversationKey, *, limit: int) -> list[InboxRow]:
        """Return the messages of a chat, including its topics, that the agent chose not to answer, newest first."""
        params: Params = {**key_params(chat), "limit": limit}
        return [inbox_row_from(row) for row in await self._database.read(_SILENT, params)]

    async def list_with_origin(self, chat: ConversationKey, *, limit: int) -> list[InboxRow]:
        """Return the messages of schedules and hooks in a chat, including its topics, newest first."""
        params: Params = {**key_params(chat), "limit": limit}
        return [inbox_row_from(row) for row in await self._database.read(_WITH_ORIGIN, params)]

    async def count_silent(self, channel: str) -> int:
        """Return the number of messages of a channel that the agent chose not to answer."""
        rows = await self._database.read(_COUNT_SILENT, {"channel": channel})
        return int(rows[0]["rows"])

    async def list_recent(self, *, limit: int = 100, before: int = NEWEST) -> list[InboxRow]:
        """Return rows, newest first; only those with an id below `before`."""
        params: Params = {"limit": limit, "before": before}
        return [inbox_row_from(row) for row in await self._database.read(_RECENT, params)]

    async def find_running(self, thread_id: str) -> InboxRow | None:
        """Return the message that a thread's running turn answers; None = there is none."""
        rows = await self._database.read(_RUNNING_OF_THREAD, {"thread_id": thread_id})
        return inbox_row_from(rows[0]) if rows else None

    async def find_newest(self, channel: str, chat: str, topic: str = "") -> InboxRow | None:
        """Return a person's newest chat message in a chat, or in one topic of it; None if there is none."""
        params: Params = {"channel": channel, "chat": chat, "topic": topic}
        rows = await self._database.read(_NEWEST_OF_CHAT, params)
        return inbox_row_from(rows[0]) if rows else None

    async def find_span(self, conversation_id: int, thread_id: str) -> ThreadSpan:
        """Return where a thread's messages are in its conversation."""
        params: Params = {"conversation_id": conversation_id, "thread_id": thread_id}
        first = await self._database.read(_FIRST_OF_THREAD, params)
        last = await self._database.read(_LAST_OF_THREAD, params) if first else []
        return ThreadSpan(
            conversation_id=conversation_id,
            thread_id=thread_id,
            first=first[0]["seq"] if first else 0,
            last=last[0]["seq"] if last else 0,
            since=first[0]["received_at"] if first else 0.0,
            until=last[0]["received_at"] if last else 0.0,
        )

    async def list_of_thread(
        self, span: ThreadSpan, *, limit: int, before: int = NEWEST
    ) -> list[InboxRow]:
        """Return the messages of a thread and the commands between them, newest first: positions below `before`."""
        params: Params = {**asdict(span), "limit": limit, "before": before}
        return [inbox_row_from(row) for row in await self._database.read(_OF_THREAD, params)]

    async def list_event_ids(self, span: ThreadSpan) -> list[str]:
        """Return the event IDs of a thread's messages, in any order."""
        rows = await self._database.read(_EVENT_IDS_OF_THREAD, asdict(span))
        return [str(row["event_id"]) for row in rows]

    async def list_newest(self, keys: Collection[ConversationKey]) -> list[InboxRow]:
        """Return the newest message of each of these conversations, in any order."""
        if not keys:
            return []
        params: dict[str, str] = {}
        wanted = []
        for number, key in enumerate(keys):
            parts = asdict(key)
            wanted.append(" AND ".join(f"{name} = :{name}{number}" for name in parts))
            params |= {f"{name}{number}": value for name, value in parts.items()}
        statement = f"""{SELECT_ROWS}
        WHERE ({" OR ".join(wanted)})
        AND seq = (SELECT max(seq) FROM inbox AS other WHERE other.conversation_id = conversation.id)
        """  # noqa: S608 - statements of the store only
        found: Params = params
        return [inbox_row_from(row) for row in await self._database.read(statement, found)]


def _finish(tx: Transaction, ending: Params, known: dict[ConversationKey, int]) -> str | None:
    """Finish a row and return its body; None if it is finished already. Adds its conversation's ID to `known`."""
    rows = tx.run(_FINISH, ending)
    if rows and rows[0]["kind"] == "chat":
        for locked in tx.run(_LOCK_CONVERSATION, {"id": rows[0]["conversation_id"]}):
            known[key_from_row(locked)] = int(locked["id"])
    return str(rows[0]["body"]) if rows else None
