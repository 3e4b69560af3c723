"""The past_message table: messages of people and the agent, searchable by words.

Both engines index the same words, which this module splits: SQLite in an FTS5 table, PostgreSQL in a GIN index.
Chinese, Japanese and Korean are written without spaces, so each pair of neighboring characters is a word.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from store.database import Database
from store.rows import from_row
from store.transaction import Params, Statement, Transaction

MAX_TEXT_CHARS = 20_000
"""Longest text that is kept of a message, characters."""

MAX_WORD_CHARS = 40
MAX_QUERY_WORDS = 12
"""Maximum number of words in a query; the longest words are used."""

ROWS_PER_WORD = 100
"""How many of the newest messages to consider for each word of a query."""

MIN_PREFIX_CHARS = 4
"""A query word of at least this length also finds longer words that begin with it."""

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff々〆ー"
_RUNS = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_IS_CJK = re.compile(rf"[{_CJK}]")
_STOP_WORDS = frozenset(
    """a an and are as at be by did do does for from had has have how i in is it me my of on or our said say that the
    they this to was we were what when where which who why will with you your about""".split()  # noqa: SIM905 - a list
)

_INSERT = """
INSERT INTO past_message (scope, agent, thread_id, message_id, speaker, text, words, said_at)
SELECT :scope, :agent, :thread_id, :message_id, :speaker, :text, :words, :said_at
WHERE EXISTS (SELECT 1 FROM thread WHERE thread_id = :thread_id)
ON CONFLICT (thread_id, message_id) DO NOTHING
"""
_DELETE_LATER = """
DELETE FROM past_message WHERE thread_id = :thread_id AND id > (
    SELECT max(id) FROM past_message WHERE thread_id = :thread_id AND message_id = :message_id)
"""
_DELETE_THREAD = "DELETE FROM past_message WHERE thread_id = :thread_id"
_DELETE_AGENT = "DELETE FROM past_message WHERE scope = :scope AND agent = :agent"
_DELETE_SCOPE = "DELETE FROM past_message WHERE scope = :scope"
_DELETE_TURN = """
DELETE FROM past_message WHERE thread_id = :thread_id AND said_at = (
    SELECT said_at FROM past_message WHERE thread_id = :thread_id AND message_id = :message_id)
"""
_DELETE_FROM = """
DELETE FROM past_message WHERE thread_id = :thread_id AND id >= (
    SELECT min(id) FROM past_message WHERE thread_id = :thread_id AND message_id = :message_id)
"""
_FOUND = f"""
AND scope = :scope AND agent = :agent ORDER BY id DESC LIMIT {ROWS_PER_WORD}
"""
_SELECT_SQLITE = f"""
SELECT past_message.* FROM past_message WHERE id IN (
    SELECT rowid FROM past_message_words WHERE past_message_words MATCH :query ORDER BY rowid DESC
    LIMIT {ROWS_PER_WORD}
) {_FOUND}
"""  # noqa: S608 - literals only
_SELECT_POSTGRES = f"""
SELECT * FROM past_message
WHERE array_to_tsvector(string_to_array(words, ' ')) @@ CAST(CAST(:query AS TEXT) AS tsquery) {_FOUND}
"""  # noqa: S608 - literals only


@dataclass(frozen=True, slots=True, kw_only=True)
class PastMessage:
    """A message that people saw.

    Attributes:
        scope: The person or room whose memory it belongs to.
        agent: The custom agent; "" = the lead agent.
        thread_id: Its thread.
        message_id: Its id there.
        speaker: Who said it; "" = the agent.
        text: The words.
        said_at: Unix seconds.
    """

    scope: str
    agent: str
    thread_id: str
    message_id: str
    speaker: str
    text: str
    said_at: float


class PastMessages:
    """The past_message table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, turns: Sequence[tuple[str, Sequence[PastMessage]]]) -> None:
        """Store turns, each with the ID of the message before it; "" = it begins the thread. Raises StoreError.

        Rows of the thread after that message are deleted, because those messages were taken back. Turns of threads that
        do not exist are skipped. The rows of a thread are deleted with it.
        """
        statements: list[Statement] = []
        for before, messages in turns:
            if messages and before:
                later = {"thread_id": messages[0].thread_id, "message_id": before}
                statements.append((_DELETE_LATER, later))
            elif messages:
                statements.append((_DELETE_THREAD, {"thread_id": messages[0].thread_id}))
            statements += [(_INSERT, _params(message)) for message in messages]

        def work(tx: Transaction) -> None:
            tx.run_all(statements)

        await self._database.transaction(work)

    async def search(self, scope: str, agent: str, query: str, *, limit: int) -> list[PastMessage]:
        """Return messages of a scope that contain words of a query, those with the most and rarest words first.

        Raises StoreError.
        """
        words = query_words(query)
        hits: dict[int, PastMessage] = {}
        scores: dict[int, float] = {}
        for word in words:
            rows = await self._database.read(*self._statement(scope, agent, word))
            for row in rows:
                number = row["id"]
                hits[number] = from_row(PastMessage, row)
                scores[number] = scores.get(number, 0.0) + 1 + 1 / len(rows)
        best = sorted(hits, key=lambda number: (-scores[number], -number))
        return [hits[number] for number in best[:limit]]

    async def delete_scope(self, scope: str, agent: str | None) -> None:
        """Delete the messages of a scope; with an agent, only those of its conversations. Raises StoreError."""
        if agent is None:
            await self._database.execute(_DELETE_SCOPE, {"scope": scope})
        else:
            await self._database.execute(_DELETE_AGENT, {"scope": scope, "agent": agent})

    async def delete_turn(self, thread_id: str, message_id: str) -> None:
        """Delete a message and the messages stored with it, such as the answer. Raises StoreError."""
        params = {"thread_id": thread_id, "message_id": message_id}
        await self._database.execute(_DELETE_TURN, params)

    async def delete_from(self, thread_id: str, message_id: str) -> None:
        """Delete a message and everything said after it in its thread. Raises StoreError."""
        params = {"thread_id": thread_id, "message_id": message_id}
        await self._database.execute(_DELETE_FROM, params)

    def _statement(self, scope: str, agent: str, word: str) -> Statement:
        mark = _scope_word(scope, agent)
        is_prefix = len(word) >= MIN_PREFIX_CHARS or (len(word) == 1 and _IS_CJK.match(word))
        if self._database.engine.has_checkpoints:  # PostgreSQL
            query = f"'{mark}' & '{word}'{':*' if is_prefix else ''}"
            sql = _SELECT_POSTGRES
        else:
            query = f'"{mark}" AND "{word}"{" *" if is_prefix else ""}'
            sql = _SELECT_SQLITE
        return sql, {"query": query, "scope": scope, "agent": agent}


def split_words(text: str) -> Iterator[str]:
    """Yield the words of a text: letters and digits, pairs of CJK characters, and the last CJK character of a run.

    >>> list(split_words("Ann's birthdays: 生日快乐!"))
    ['ann', 's', 'birthday', '生日', '日快', '快乐', '乐']
    """
    for run in _RUNS.findall(unicodedata.normalize("NFKC", text).casefold()):
        if _IS_CJK.match(run):
            yield from (run[at : at + 2] for at in range(len(run)))
        else:
            yield _stem(run[:MAX_WORD_CHARS])


def query_words(query: str) -> list[str]:
    """Return the words of a query, without very common English words.

    A CJK character counts as a word only if it has no CJK neighbor.

    >>> query_words("When is the birthday of 小明?"), query_words("茶"), query_words("what is it")
    (['birthday', '小明'], ['茶'], ['what', 'is', 'it'])
    """
    words = list(dict.fromkeys(split_words(query)))
    alone = {run for run in _RUNS.findall(unicodedata.normalize("NFKC", query)) if len(run) == 1}
    words = [word for word in words if len(word) > 1 or word in alone or not _IS_CJK.match(word)]
    rare = [word for word in words if word not in _STOP_WORDS and (len(word) > 1 or word in alone)]
    return sorted(rare or words, key=len, reverse=True)[:MAX_QUERY_WORDS]


def _stem(word: str) -> str:
    """Return an English word without the plural's ending.

    >>> [_stem(word) for word in ("parties", "ships", "glass", "bus")]
    ['party', 'ship', 'glass', 'bus']
    """
    if len(word) < MIN_PREFIX_CHARS or not word.endswith("s") or word.endswith("ss"):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") and len(word) > MIN_PREFIX_CHARS else word[:-1]


def _scope_word(scope: str, agent: str) -> str:
    """Return a word that all messages of a scope and agent contain, which divides the word index by scope."""
    return "0" + hashlib.sha256(f"{agent}\n{scope}".encode()).hexdigest()[:24] + "scope"


def _params(message: PastMessage) -> Params:
    text = message.text[:MAX_TEXT_CHARS]
    words = dict.fromkeys(split_words(text))
    return {
        "scope": message.scope,
        "agent": message.agent,
        "thread_id": message.thread_id,
        "message_id": message.message_id,
        "speaker": message.speaker,
        "text": text,
        "words": " ".join((_scope_word(message.scope, message.agent), *words)),
        "said_at": message.said_at,
    }
