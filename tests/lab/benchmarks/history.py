"""A long history: the cost of pruning and searching in a database with a million rows."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from typing_extensions import override

from store.config import StoreConfig
from store.conversations import ConversationKey, ConversationStore
from store.database import Database, Params, Transaction
from store.inbox import InboxStore
from store.message_history import MessageHistoryStore
from store.message_topics import MessageTopicStore
from store.outbox import OutboxStore
from store.retention import DAY_S, Retention
from store.runs import RunStore
from store.threads import ThreadQuery, ThreadStore
from store.transaction import T
from tests.lab.benchmarks.figures import Figure, percentile

TURNS = 200_000
"""Number of turns. Each has a row in the inbox, the outbox, the runs and the topics, and two received IDs: 1.2 million
rows.
"""

CHATS = 20_000
OLD = TURNS // 20
"""Turns that are old enough to be pruned."""

NOW = 400 * DAY_S
ROUNDS = 30
BAR = "< 10"

_NUMBERS = """
WITH RECURSIVE turn (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM turn WHERE n + 1 < :end)
"""
_AT = "CASE WHEN n < :old THEN 0.0 ELSE :now END"
_FILL = (
    """INSERT INTO inbox (conversation_id, seq, event_id, message_id, kind, body, state, thread_id, received_at)
    {numbers} SELECT n % :chats + 1, n, 'e' || n, 'm' || n, 'chat', :body, 'done', 't' || (n % :chats), {at}
    FROM turn""",
    """INSERT INTO outbox (key, conversation_id, body, state, platform_id, created_at, updated_at)
    {numbers} SELECT n || ':reply:0', n % :chats + 1, :body,
        CASE n % 1000 WHEN 0 THEN 'failed' ELSE 'delivered' END, 'p' || n, {at}, {at} FROM turn""",
    """INSERT INTO received_id (channel, workspace, kind, chat, external_id, received_at)
    {numbers} SELECT 'slack', 'T', 'event', '', 'e' || n, {at} FROM turn""",
    """INSERT INTO received_id (channel, workspace, kind, chat, external_id, received_at)
    {numbers} SELECT 'slack', 'T', 'message', 'c' || (n % :chats), 'm' || n, {at} FROM turn""",
    """INSERT INTO message_topic (channel, workspace, chat, message_id, topic, created_at)
    {numbers} SELECT 'slack', 'T', 'c' || (n % :chats), 'p' || n, 'x', {at} FROM turn""",
    """INSERT INTO run (run_id, thread_id, assistant_id, status, multitask_strategy, kwargs, created_at, updated_at)
    {numbers} SELECT 'r' || n, 't' || (n % :chats), 'lead_agent', 'success', 'enqueue', :body, {at}, {at}
    FROM turn""",
)
_FILL_CHATS = (
    """INSERT INTO conversation (id, channel, workspace, chat, topic, thread_id, last_seq, created_at, updated_at)
    {numbers} SELECT n + 1, 'slack', 'T', 'c' || n, 'x', 't' || n, :turns, :now, :now FROM turn""",
    """INSERT INTO thread (thread_id, created_at, updated_at, state_updated_at, metadata)
    {numbers} SELECT 't' || n, :now, :now, :now,
        json_object('channel', 'slack', 'chat', 'c' || n, 'graph_id', 'lead_agent') FROM turn""",
)


class _TimedDatabase(Database):
    """Records how long each transaction, including its commit, and each read takes.

    Attributes:
        took: Durations, seconds.
    """

    def __init__(self, database: Database) -> None:
        vars(self).update(vars(database))
        self.took: list[float] = []

    @override
    async def transaction(self, work: Callable[[Transaction], T], *, order: str = "") -> T:
        began = time.perf_counter()
        result = await super().transaction(work, order=order)
        self.took.append(time.perf_counter() - began)
        return result


def run() -> list[Figure]:
    """Measure and return the figures."""
    return anyio.run(_measure)


async def _measure() -> list[Figure]:
    with TemporaryDirectory() as folder:
        async with Database.open(StoreConfig(), Path(folder)) as opened:
            rows = await _fill(opened)
            searches = {name: await _timed(search) for name, search in _searches(opened).items()}
            database = _TimedDatabase(opened)
            deleted = await Retention(database).prune(now=NOW)
    slowest = max(searches, key=lambda name: searches[name])
    p50, p99 = (percentile(database.took, share) * 1000 for share in (0.5, 0.99))
    return [
        Figure("history: rows", rows, ""),
        Figure("history: rows pruned", deleted, ""),
        Figure("history: a batch of the prune, commit included, p50", p50, "ms", BAR),
        Figure("history: a batch of the prune, commit included, p99", p99, "ms", BAR),
        *(
            Figure(f"history: {name}, median", took * 1000, "ms", BAR if name == slowest else "")
            for name, took in searches.items()
        ),
    ]


async def _fill(database: Database) -> int:
    body = '{"text": "' + "x" * 400 + '"}'
    params: Params = {"old": OLD, "now": NOW, "chats": CHATS, "turns": TURNS, "body": body}

    def insert(template: str, first: int) -> Callable[[Transaction], object]:
        statement = template.format(numbers=_NUMBERS, at=_AT)
        return lambda tx: tx.run(statement, {"first": first, "end": first + CHATS, **params})

    for template in _FILL_CHATS:
        await database.transaction(insert(template, 0))
    for template in _FILL:
        for first in range(0, TURNS, CHATS):
            await database.transaction(insert(template, first))
    return len(_FILL) * TURNS + len(_FILL_CHATS) * CHATS


def _searches(database: Database) -> dict[str, Callable[[], Awaitable[object]]]:
    inbox, outbox, threads = InboxStore(database), OutboxStore(database), ThreadStore(database)
    history = MessageHistoryStore(database)
    key = ConversationKey(channel="slack", workspace="T", chat="c7", topic="x")
    common = ThreadQuery(metadata={"channel": "slack", "graph_id": "lead_agent"})
    rare = ThreadQuery(metadata={"channel": "slack", "chat": "c7"})
    return {
        "unfinished messages": inbox.list_unfinished,
        "the newest messages": inbox.list_recent,
        "messages by state": inbox.count_by_state,
        "the next delivery of a conversation": lambda: outbox.next_open(key, now=time.time()),
        "failed deliveries": lambda: outbox.list_recent(states=["failed"]),
        "all deliveries, by states": lambda: outbox.list_recent(states=["delivered", "failed"]),
        "deliveries by state": outbox.count_by_state,
        "a message by its platform id": lambda: history.find_by_message(key, "m7"),
        "a message by its id": lambda: history.find(7),
        "the topic of a message": lambda: MessageTopicStore(database).find_topic(key, "p7"),
        "conversations": ConversationStore(database).list_recent,
        "threads, a rare filter": lambda: threads.search(rare),
        "threads, a common filter": lambda: threads.search(common),
        "runs of a thread": lambda: RunStore(database).list_by_thread("t7"),
    }


async def _timed(search: Callable[[], Awaitable[object]]) -> float:
    """Return the median of several rounds, seconds."""
    took = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        await search()
        took.append(time.perf_counter() - began)
    return percentile(took, 0.5)
