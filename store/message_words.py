"""The message_words table: the words of accepted messages, which administrators can search.

It is filled in the background, a second after a message is accepted, so that accepting a message costs nothing extra.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from store.conversations import ConversationKey, key_from_row
from store.database import Database, Params, Statement, Transaction
from store.inbox_accept import SELECT_ROWS, InboxRow, inbox_row_from
from store.past_messages import MIN_PREFIX_CHARS, query_words, split_words
from store.rows import from_row

OVERLAP = 1000
"""Rows before the newest one to look at again, because another node may have committed one of them later."""

MAX_WORDS = 300
"""Maximum number of words to index in a message."""

MAX_FOUND = 2000
"""How many of the newest messages with the words of a query are searched for an outcome."""

SCANNED = 20_000
"""Number of newest messages to search without the index; this takes 30 ms.

The index reads all messages with a word before it can return the newest. A frequent word has enough matches among these
messages.
"""

RARE = SCANNED // 20
"""A word that is in fewer of these messages than this is found quickly by the index."""

_MISSING = """
SELECT inbox.id, inbox.body, inbox.received_at, channel, workspace, chat, topic
FROM inbox JOIN conversation ON conversation.id = inbox.conversation_id
LEFT JOIN message_words ON message_words.inbox_id = inbox.id
WHERE inbox.id > (SELECT coalesce(max(inbox_id), 0) FROM message_words) - CAST(:overlap AS BIGINT)
AND message_words.inbox_id IS NULL
ORDER BY inbox.id LIMIT :limit
"""
_INSERT = """
INSERT INTO message_words (inbox_id, words) SELECT :inbox_id, :words
WHERE EXISTS (SELECT 1 FROM inbox WHERE id = :inbox_id)
ON CONFLICT (inbox_id) DO NOTHING
"""
_SELECT_SQLITE = """
SELECT inbox_id FROM message_words_index JOIN message_words ON inbox_id = message_words_index.rowid
WHERE message_words_index MATCH :query AND message_words_index.rowid < :before
"""
_SELECT_POSTGRES = """
SELECT inbox_id FROM message_words
WHERE array_to_tsvector(string_to_array(words, ' ')) @@ CAST(CAST(:query AS TEXT) AS tsquery) AND inbox_id < :before
"""
UNDELIVERED = "undelivered"
"""The state of answered messages that have a failed delivery."""

_FAILED_KEYS = "SELECT key FROM outbox WHERE state = 'failed' ORDER BY id DESC LIMIT :found"
_OUTCOMES: Mapping[str, str] = {
    "": "",
    "failed": "AND inbox.outcome = 'failed'",
    "waiting": "AND inbox.outcome = 'waiting' AND inbox.question IS NOT NULL",
    "silent": "AND inbox.outcome = 'silent'",
    "stopped": "AND inbox.outcome = 'stopped'",
    "taken_over": "AND inbox.outcome = 'taken_over'",
    "running": "AND inbox.state IN ('new', 'running')",
    "answered": "AND inbox.state = 'done' AND inbox.outcome IS NULL",
    UNDELIVERED: "AND inbox.state = 'done'",
}
"""Conditions of the states that administrators filter by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnindexedMessage:
    """A message without stored words: its ID, place, encoded form, and when it was accepted (Unix seconds)."""

    id: int
    key: ConversationKey
    body: str
    received_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """Which messages to list; "" = any.

    Attributes:
        text: Words that the message, its sender's name or its place's name contains.
        channel, chat, person: IDs.
        state: A key of `_OUTCOMES`.
    """

    text: str = ""
    channel: str = ""
    chat: str = ""
    person: str = ""
    state: str = ""


class MessageWords:
    """Searches accepted messages."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_missing(self, *, limit: int) -> list[UnindexedMessage]:
        """Return messages without stored words, oldest first. Raises StoreError."""
        rows = await self._database.read(_MISSING, {"overlap": OVERLAP, "limit": limit})
        return [from_row(UnindexedMessage, row, key=key_from_row(row)) for row in rows]

    async def add(self, words: Sequence[tuple[int, str]], more: Sequence[Statement] = ()) -> None:
        """Store the words of messages (`words_of`), and run `more` in the same transaction. Raises StoreError."""

        def work(tx: Transaction) -> None:
            rows: list[Statement] = [
                (_INSERT, {"inbox_id": row, "words": text}) for row, text in words
            ]
            tx.run_all([*rows, *more])

        await self._database.transaction(work)

    async def list_messages(
        self, wanted: MessageFilter, *, limit: int, before: int
    ) -> list[InboxRow]:
        """Return messages with an ID below `before`, newest first. Raises StoreError."""
        params: dict[str, str | int] = {"limit": limit, "before": before}
        condition = _OUTCOMES[wanted.state]
        terms = [
            *(_mark(kind, value) for kind, value in _marked(wanted) if value),
            *query_words(wanted.text),
        ]
        if wanted.text and not query_words(wanted.text):
            return []
        found_ids: list[Sequence[int]] = []
        if terms:
            found_ids.append(
                await self._find(terms, before=before, found=MAX_FOUND if condition else limit)
            )
        if wanted.state == UNDELIVERED:
            found_ids.append(await self._find_undelivered())
        if found_ids:
            ids = set.intersection(*map(set, found_ids))
            params["ids"] = orjson.dumps(sorted(ids)).decode()
            condition += " AND inbox.id IN (SELECT CAST(value AS BIGINT) FROM json_each(:ids))"
        statement = f"{SELECT_ROWS} WHERE inbox.id < :before {condition} ORDER BY inbox.id DESC LIMIT :limit"
        found: Params = params
        return [inbox_row_from(row) for row in await self._database.read(statement, found)]

    async def _find_undelivered(self) -> list[int]:
        """Return the messages with the newest failed deliveries; see `bus.outbound.rows` for their keys."""
        rows = await self._database.read(_FAILED_KEYS, {"found": MAX_FOUND})
        names = (str(row["key"]).partition(":")[0] for row in rows)
        return [int(name) for name in names if name.isdecimal()]

    async def _find(self, terms: Sequence[str], *, before: int, found: int) -> list[int]:
        """Return the newest messages with all of these words.

        Frequent words are found in the newest messages. Otherwise, the index finds the messages with the rare words,
        and their texts are searched for the other words.
        """
        is_postgres = self._database.engine.has_checkpoints
        position = "strpos" if is_postgres else "instr"
        shared: dict[str, str | int] = {"before": before, "found": found}
        values = {
            f"term{number}": f" {term}" if _is_prefix(term) else f" {term} "
            for number, term in enumerate(terms)
        }
        tests = {
            name: f"{position}(' ' || message_words.words || ' ', :{name}) > 0" for name in values
        }
        newest = f"""
        FROM message_words WHERE inbox_id < :before AND inbox_id > (
            SELECT coalesce(max(inbox_id), 0) FROM message_words WHERE inbox_id < :before) - CAST({SCANNED} AS BIGINT)
        """  # noqa: S608 - literals of this module only
        statement = f"SELECT inbox_id {newest} AND {' AND '.join(tests.values())} ORDER BY inbox_id DESC LIMIT :found"
        rows = await self._database.read(statement, {**shared, **values})
        if len(rows) < found:
            sums = ", ".join(
                f"sum(CASE WHEN {test} THEN 1 ELSE 0 END) AS {name}" for name, test in tests.items()
            )
            [counts] = await self._database.read(
                f"SELECT {sums} {newest}", {"before": before, **values}
            )
            ordered = sorted(range(len(terms)), key=lambda number: counts[f"term{number}"] or 0)
            rare = [one for one in ordered if (counts[f"term{one}"] or 0) < RARE] or ordered[:1]
            others = {f"term{one}" for one in ordered if one not in rare}
            query = (_query_postgres if is_postgres else _query_sqlite)(
                [terms[one] for one in rare]
            )
            condition = "".join(f" AND {tests[name]}" for name in sorted(others))
            # OFFSET 0 keeps PostgreSQL from reading all rows in order: it does not know how rare a word is.
            find = (
                f"SELECT inbox_id FROM ({_SELECT_POSTGRES}{condition} OFFSET 0) AS matching"  # noqa: S608
                " ORDER BY inbox_id DESC LIMIT :found"
                if is_postgres
                else f"{_SELECT_SQLITE}{condition} ORDER BY message_words_index.rowid DESC LIMIT :found"
            )
            kept = {name: values[name] for name in others}
            rows = await self._database.read(find, {**shared, **kept, "query": query})
        return [row["inbox_id"] for row in rows]


def words_of(key: ConversationKey, person: str, texts: Sequence[str]) -> str:
    """Return the words to store for a message: `key`, the ID of its author, and the words of `texts`.

    >>> words_of(ConversationKey(channel="c", workspace="w", chat="1"), "u", ["Hi Ann"]).split()[3:]
    ['hi', 'ann']
    """
    marks = [_mark("channel", key.channel), _mark("chat", key.chat), _mark("person", person)]
    words = dict.fromkeys(word for text in texts for word in split_words(text))
    return " ".join([*marks, *list(words)[:MAX_WORDS]])


def _marked(wanted: MessageFilter) -> Sequence[tuple[str, str]]:
    return ("channel", wanted.channel), ("chat", wanted.chat), ("person", wanted.person)


def _mark(kind: str, value: str) -> str:
    """Return a word that all messages of a channel, chat or person have."""
    return "0" + hashlib.sha256(f"{kind}\n{value}".encode()).hexdigest()[:20] + kind


def _query_sqlite(terms: Sequence[str]) -> str:
    return " AND ".join(f'"{term}"{" *" if _is_prefix(term) else ""}' for term in terms)


def _query_postgres(terms: Sequence[str]) -> str:
    return " & ".join(f"'{term}'{':*' if _is_prefix(term) else ''}" for term in terms)


def _is_prefix(term: str) -> bool:
    return len(term) >= MIN_PREFIX_CHARS and not term.startswith("0")
