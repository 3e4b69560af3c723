"""The list of messages with a million accepted messages and 100,000 refused ones: pages, filters and search.

Each figure is a request of the whole service in this process, on both engines. The bar is issue 34's: a page in less
than 200 ms, search included.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from bus.messages import InboundMessage, ReplyTarget, Sender, encode_inbound
from store.conversations import ConversationKey
from store.message_words import words_of
from store.transaction import Params, Statement, Transaction
from tests.fakes.postgres import postgres_server
from tests.gateway.composed import ComposedService, composed
from tests.lab.benchmarks.figures import Figure, percentile, rounds

MESSAGES = 1_000_000
REFUSED = 100_000
"""As many as are kept (`store/refused_messages.py`)."""

CHATS = 20_000
"""Chats, with one person each. Half of the messages are in the first one, a busy group."""

BATCH = 20_000
ROUNDS = 20
BAR = "< 200"

_NUMBERS = """
WITH RECURSIVE turn (n) AS (
    SELECT CAST(:first AS BIGINT) UNION ALL SELECT n + 1 FROM turn WHERE n + 1 < CAST(:end AS BIGINT))
"""
_CHAT = "CASE n % 2 WHEN 0 THEN 0 ELSE n % 20000 END"
_PERSON = "'u' || (n % 20000)"
_HELPERS = """
CREATE TABLE bench_marks (chat BIGINT NOT NULL PRIMARY KEY, chat_mark TEXT NOT NULL, person_mark TEXT NOT NULL)
"""
_CONVERSATIONS = """
INSERT INTO conversation (id, channel, workspace, chat, topic, thread_id, last_seq, created_at, updated_at)
{numbers} SELECT n + 1, 'slack', 'T', 'c' || n, '', 't' || n, 0, 1.0, 1.0 FROM turn
"""
_INBOX = """
INSERT INTO inbox (conversation_id, seq, event_id, message_id, kind, body, state, thread_id, run_id, outcome, problem,
    received_at)
{numbers} SELECT {chat} + 1, n, 'e' || n, 'm' || n, 'chat', replace(CAST(:body AS TEXT), 'PERSON', {person}), 'done',
    't' || {chat}, 'r' || n, CASE WHEN n % 100 = 0 THEN 'failed' WHEN n % 1000 = 1 THEN 'silent' END,
    CASE WHEN n % 100 = 0 THEN 'InternalServerError: HTTP 500' END, n
FROM turn
"""
_WORDS = """
INSERT INTO message_words (inbox_id, words)
{numbers} SELECT n, :channel_mark || ' ' || chat_mark || ' ' || person_mark || ' everywhere often' || (n % 100)
    || ' seldom' || (n % 10000) || ' only' || n || ' w' || (n % 7) || ' w' || (n % 11) || ' w' || (n % 13)
    || ' w' || (n % 4001) || ' w' || (n % 5003) || ' w' || (n % 6007)
FROM turn JOIN bench_marks ON bench_marks.chat = {chat}
"""
_REFUSED = """
INSERT INTO refused_message (channel, workspace, chat, topic, is_private, place, user_id, user_name, text, reason,
    received_at)
{numbers} SELECT 'slack', 'T', 'c' || (n % 20000), '', 0, 'A group', {person}, 'Ann Lee',
    CASE n % 10 WHEN 0 THEN 'may I come in?' ELSE '' END, CASE n % 10 WHEN 0 THEN 'pairing' ELSE 'not_addressed' END,
    n * 10
FROM turn
"""
REQUESTS = {
    "the first page": "",
    "a page in the middle": "before=500000.50000",
    "the last page": "before=40.1",
    "failed": "state=failed",
    "waiting, none": "state=waiting",
    "silent": "state=silent",
    "stopped, none": "state=stopped",
    "refused": "state=refused",
    "not for the bot": "state=not_addressed",
    "a person": "person=u7777",
    "a busy chat": "chat=c0",
    "a quiet chat": "chat=c7777",
    "a channel, page in the middle": "channel=slack&before=500000.50000",
    "another channel, none": "channel=telegram",
    "a word of all": "q=everywhere",
    "a word of all, page in the middle": "q=everywhere&before=500000.50000",
    "a word of few": "q=seldom1234",
    "a word of one": "q=only777777",
    "a word of none": "q=nowhere",
    "the beginning of a word": "q=eve",
    "the beginning of many words": "q=onl",
    "two words": "q=everywhere+seldom1234",
    "two frequent words": "q=everywhere+w3",
    "a word of all, failed": "q=everywhere&state=failed",
    "a word of few, failed": "q=seldom1200&state=failed",
    "a word of all, stopped, none": "q=everywhere&state=stopped",
    "a person, failed": "person=u7700&state=failed",
    "a word of all of a person": "q=everywhere&person=u7777",
}


def run() -> Iterator[Figure]:
    """Measure and yield the figures."""
    with postgres_server() as server:
        for engine in ("SQLite", "PostgreSQL"):
            with ExitStack() as stack:
                folder = Path(stack.enter_context(TemporaryDirectory()))
                config: dict[str, object] = {}
                if engine == "PostgreSQL":
                    if server is None:
                        continue
                    config = {"database": {"url": stack.enter_context(server.database())}}
                yield from anyio.run(_measure, folder, config, engine)


async def _measure(folder: Path, config: dict[str, object], engine: str) -> list[Figure]:
    async with composed(folder, json.dumps(config)) as service:
        await _fill(service, has_statistics=engine == "PostgreSQL")
        figures = []
        slowest = 0.0
        for name, query in REQUESTS.items():
            took = await _timed(service, f"/api/messages?{query}")
            p50, p95 = (percentile(took, share) * 1000 for share in (0.5, 0.95))
            slowest = max(slowest, p95)
            figures.append(Figure(f"messages, {engine}: {name}, p50", p50, "ms"))
            figures.append(Figure(f"messages, {engine}: {name}, p95", p95, "ms", BAR))
        timeline = [
            await _timed(service, f"/api/conversations/{thread}/timeline") for thread in _THREADS
        ]
        for name, took in zip(("a busy chat", "a quiet chat"), timeline, strict=True):
            p95 = percentile(took, 0.95) * 1000
            figures.append(Figure(f"timeline, {engine}: {name}, p95", p95, "ms", BAR))
    return figures


_THREADS = (
    "00000000-0000-4000-8000-000000000000",
    "00000000-0000-4000-8000-000000007777",
)


async def _timed(service: ComposedService, path: str) -> list[float]:
    """Return how long requests take, seconds."""
    took = []
    for _ in range(rounds(ROUNDS)):
        began = time.perf_counter()
        response = await service.client.get(path)
        took.append(time.perf_counter() - began)
        response.raise_for_status()
    return took


async def _fill(service: ComposedService, *, has_statistics: bool) -> None:
    database = service.services.database
    message = InboundMessage(
        event_id="e1",
        message_id="m1",
        key=ConversationKey(channel="slack", workspace="T", chat="c1"),
        reply_target=ReplyTarget(chat="c1"),
        sender=Sender(user_id="PERSON", name="Ann Lee"),
        text="everywhere " + "often and again " * 20,
        is_private=True,
        is_addressed=True,
    )
    marks = [_marks(chat) for chat in range(CHATS)]
    params: Params = {"body": encode_inbound(message), "channel_mark": marks[0][0]}

    def insert(templates: Sequence[str], first: int, end: int) -> Callable[[Transaction], object]:
        statements: list[Statement] = []
        for template in templates:
            sql = template.format(numbers=_NUMBERS, chat=_CHAT, person=_PERSON)
            named = {name: value for name, value in params.items() if f":{name}" in sql}
            statements.append((sql, {"first": first, "end": end, **named}))
        return lambda tx: tx.run_all(statements)

    def helpers(tx: Transaction) -> None:
        tx.run(_HELPERS)
        for chat, (_, mark, person) in enumerate(marks):
            row: Params = {"chat": chat, "mark": mark, "person": person}
            tx.run("INSERT INTO bench_marks VALUES (:chat, :mark, :person)", row)

    await database.transaction(helpers)
    await database.transaction(insert([_CONVERSATIONS], 0, CHATS))
    # Store a message and its words together. Otherwise, the service would index it.
    for templates, count in (([_INBOX, _WORDS], MESSAGES), ([_REFUSED], REFUSED)):
        for first in range(1, count + 1, BATCH):
            await database.transaction(insert(templates, first, min(first + BATCH, count + 1)))
    await _bind_threads(service)
    if has_statistics:  # autovacuum does this within a minute of such an import
        await database.execute("ANALYZE inbox, message_words, conversation, refused_message", {})


async def _bind_threads(service: ComposedService) -> None:
    """Give a busy and a quiet chat threads with their metadata."""
    database = service.services.database
    for chat, thread in zip((0, 7777), _THREADS, strict=True):
        metadata = {"channel": "slack", "workspace": "T", "chat": f"c{chat}", "topic": ""}
        await service.services.runs.threads.create(thread, metadata, now=1.0)
        await database.execute(
            "UPDATE conversation SET thread_id = :thread WHERE id = :id",
            {"thread": thread, "id": chat + 1},
        )
        await database.execute(
            "UPDATE inbox SET thread_id = :thread WHERE conversation_id = :id",
            {"thread": thread, "id": chat + 1},
        )


def _marks(chat: int) -> list[str]:
    """Return the marks of the channel, a chat and its person, as in the index."""
    key = ConversationKey(channel="slack", workspace="T", chat=f"c{chat}")
    return words_of(key, f"u{chat}", []).split()
