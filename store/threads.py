"""Threads of the LangGraph-compatible API, one row each; their state is in the checkpoints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from store.database import Database, Row, Transaction, Value
from store.errors import RowConflict, RowNotFound
from store.rows import from_row

ThreadStatus = Literal["idle", "busy", "interrupted", "error"]
ThreadOrder = Literal["thread_id", "status", "created_at", "updated_at", "state_updated_at"]
TtlStrategy = Literal["delete", "keep_latest"]

_INSERT = """
INSERT INTO thread (thread_id, created_at, updated_at, state_updated_at, metadata, ttl_minutes, ttl_strategy,
    expires_at)
VALUES (:thread_id, :now, :now, :now, :metadata, :minutes, :strategy, :now + CAST(:minutes AS DOUBLE PRECISION) * 60)
ON CONFLICT (thread_id) DO NOTHING
RETURNING *
"""
_GET = "SELECT * FROM thread WHERE thread_id = :thread_id"
_LOCK = f"{_GET} /* FOR UPDATE */"
_PATCH = """
UPDATE thread SET metadata = :metadata, updated_at = :now WHERE thread_id = :thread_id RETURNING *
"""
_SET_TTL = """
UPDATE thread SET ttl_minutes = :minutes, ttl_strategy = :strategy, updated_at = :now,
    expires_at = :now + CAST(:minutes AS DOUBLE PRECISION) * 60
WHERE thread_id = :thread_id RETURNING *
"""
_EXPIRED = """
SELECT * FROM thread WHERE expires_at IS NOT NULL AND expires_at <= :now AND status <> 'busy'
ORDER BY expires_at LIMIT :limit
"""
_RESTART_TTL = """
UPDATE thread SET expires_at = :now + ttl_minutes * 60 WHERE thread_id = :thread_id
"""
_STATE_CHANGED = """
UPDATE thread SET state_updated_at = :now, updated_at = :now, status = :status, interrupts = :interrupts,
    title = coalesce(:title, title), error = NULL
WHERE thread_id = :thread_id
"""
INDEXED_CHARS = 190
"""Maximum length of a filter's JSON that the index contains in full, characters.

With the type prefix, the index has 200 characters (migrations/0001_sqlite.sql).
"""

FEW_THREADS = 2000
"""Up to this many matches of a metadata filter are looked up and sorted. With more, the sorted index is scanned."""

# Compares one metadata filter, `:filterN` = {"key": value}, with the index table, in the format that its triggers
# write.
_MATCHES = (
    "field.key = (SELECT key FROM json_each(:filter{number})) AND field.value = "
    "(SELECT substr(type || ':' || coalesce(value, ''), 1, 200) FROM json_each(:filter{number}))"
)
COUNT_MATCHES = f"""
SELECT count(*) AS n FROM (SELECT 1 FROM thread_metadata AS field WHERE {_MATCHES.format(number=0)} LIMIT :limit)
AS found
"""  # noqa: S608 - literals only
_DELETE = "DELETE FROM thread WHERE thread_id = :thread_id RETURNING thread_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadExpiry:
    """When a thread expires, and what happens then.

    `delete` deletes the thread and everything that belongs to it; `keep_latest` deletes all states but the newest.
    """

    minutes: float
    strategy: TtlStrategy = "delete"
    expires_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A row. Times are Unix seconds; `error` is {"error", "message"}; `interrupts` is {task id: [{id, value}]}."""

    thread_id: str
    created_at: float
    updated_at: float
    state_updated_at: float
    metadata: dict[str, Any]
    status: ThreadStatus
    title: str | None
    error: dict[str, str] | None
    interrupts: dict[str, Any]
    ttl: ThreadExpiry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadQuery:
    """A search for threads. A thread's metadata must have each key of `metadata` with an equal value."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    status: ThreadStatus | None = None
    ids: Sequence[str] = ()
    sort_by: ThreadOrder = "updated_at"
    descending: bool = True
    limit: int = 10
    offset: int = 0


class ThreadStore:
    """The thread table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self,
        thread_id: str,
        metadata: Mapping[str, Any],
        *,
        now: float,
        ttl: ThreadExpiry | None = None,
    ) -> Thread:
        """Add a thread. Raises RowConflict if one with this ID exists."""
        params: dict[str, Value] = {
            "thread_id": thread_id,
            "now": now,
            "metadata": encode(metadata),
            "minutes": ttl.minutes if ttl else None,
            "strategy": ttl.strategy if ttl else None,
        }
        rows = await self._database.execute(_INSERT, params)
        if not rows:
            raise RowConflict(f"Thread with ID {thread_id} already exists")
        return _thread(rows[0])

    async def get(self, thread_id: str) -> Thread:
        """Return one thread. Raises RowNotFound."""
        rows = await self._database.read(_GET, {"thread_id": thread_id})
        if not rows:
            raise missing_thread(thread_id)
        return _thread(rows[0])

    async def patch(self, thread_id: str, metadata: Mapping[str, Any], *, now: float) -> Thread:
        """Merge `metadata` into the thread's metadata, key by key. Raises RowNotFound."""

        def work(tx: Transaction) -> Row:
            rows = tx.run(_LOCK, {"thread_id": thread_id})
            if not rows:
                raise missing_thread(thread_id)
            merged = encode({**orjson.loads(rows[0]["metadata"]), **metadata})
            return tx.run(_PATCH, {"thread_id": thread_id, "metadata": merged, "now": now})[0]

        return _thread(await self._database.transaction(work))

    async def set_ttl(self, thread_id: str, ttl: ThreadExpiry, *, now: float) -> Thread:
        """Set a thread's TTL, starting now. Raises RowNotFound."""
        params: dict[str, Value] = {
            "thread_id": thread_id,
            "minutes": ttl.minutes,
            "strategy": ttl.strategy,
            "now": now,
        }
        rows = await self._database.execute(_SET_TTL, params)
        if not rows:
            raise missing_thread(thread_id)
        return _thread(rows[0])

    async def list_expired(self, *, now: float, limit: int = 100) -> list[Thread]:
        """Return expired threads without an active run, the oldest first."""
        rows = await self._database.read(_EXPIRED, {"now": now, "limit": limit})
        return [_thread(row) for row in rows]

    async def restart_ttl(self, thread_id: str, *, now: float) -> None:
        """Restart the TTL of an expired thread whose old state was deleted."""
        params: dict[str, Value] = {"thread_id": thread_id, "now": now}
        await self._database.execute(_RESTART_TTL, params)

    async def mark_state_changed(
        self,
        thread_id: str,
        *,
        status: ThreadStatus,
        interrupts: Mapping[str, Any],
        title: str | None,
        now: float,
    ) -> None:
        """Record that the thread's state was written outside of a run."""
        params: dict[str, Value] = {
            "thread_id": thread_id,
            "status": status,
            "interrupts": encode(interrupts),
            "title": title,
            "now": now,
        }
        await self._database.execute(_STATE_CHANGED, params)

    async def search(self, query: ThreadQuery) -> list[Thread]:
        """Return the threads that match a query."""
        statement, params = search_statement(query, rarest=await self._rarest_filter(query))
        return [_thread(row) for row in await self._database.read(statement, params)]

    async def count(self, query: ThreadQuery) -> int:
        """Return how many threads match a query, ignoring its limit and offset."""
        source, where, params = _where(query, rarest=await self._rarest_filter(query))
        rows = await self._database.read(f"SELECT count(*) AS n FROM {source} {where}", params)  # noqa: S608 - literals only
        return int(rows[0]["n"])

    async def _rarest_filter(self, query: ThreadQuery) -> int | None:
        """Return the position of the metadata filter with the fewest threads; None if all have many."""
        fewest, rarest = FEW_THREADS, None
        for position, (key, value) in enumerate(query.metadata.items()):
            params: dict[str, Value] = {"filter0": encode({key: value}), "limit": FEW_THREADS}
            found = int((await self._database.read(COUNT_MATCHES, params))[0]["n"])
            if found < fewest:
                fewest, rarest = found, position
        return rarest

    async def delete(self, thread_id: str) -> bool:
        """Delete a thread and its runs; False if it does not exist."""
        params: dict[str, Value] = {"thread_id": thread_id}
        return bool(await self._database.transaction(lambda tx: tx.run(_DELETE, params)))


def encode(value: object) -> str:
    """Return JSON text for a column. Objects of unknown types become their `str`."""
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def missing_thread(thread_id: str) -> RowNotFound:
    """Return the error for a thread that does not exist."""
    return RowNotFound(f"Thread with ID {thread_id} not found")


def _thread(row: Row) -> Thread:
    expiry = None
    if row["ttl_minutes"] is not None:
        minutes, strategy = row["ttl_minutes"], row["ttl_strategy"]
        expiry = from_row(ThreadExpiry, row, minutes=minutes, strategy=strategy)
    error = orjson.loads(row["error"]) if row["error"] else None
    parsed = {name: orjson.loads(row[name]) for name in ("metadata", "interrupts")}
    return from_row(Thread, row, error=error, ttl=expiry, **parsed)


def search_statement(query: ThreadQuery, *, rarest: int | None) -> tuple[str, dict[str, Value]]:
    """Return the SELECT of a query and its parameters; every value is a parameter, never text.

    `rarest`: the position of a metadata filter that matches few threads. These threads are looked up and sorted.
    Without such a filter, threads are read in the requested order until enough of them match.
    """
    source, where, params = _where(query, rarest=rarest)
    direction = "DESC" if query.descending else "ASC"
    by = {"status": ("status", "updated_at"), "thread_id": ()}.get(query.sort_by, (query.sort_by,))
    order = ", ".join(f"thread.{column} {direction}" for column in (*by, "thread_id"))
    params |= {"limit": query.limit, "offset": query.offset}
    statement = (
        f"SELECT thread.* FROM {source} {where} ORDER BY {order} LIMIT :limit OFFSET :offset"  # noqa: S608 - literals only
    )
    return statement, params


def _where(query: ThreadQuery, *, rarest: int | None) -> tuple[str, str, dict[str, Value]]:
    """Return the tables, the condition and its parameters."""
    source = "thread"
    clauses: list[str] = []
    params: dict[str, Value] = {}
    for number, (key, value) in enumerate(query.metadata.items()):
        params[f"filter{number}"] = encode({key: value})
        matches = _MATCHES.format(number=number)
        if number == rarest:
            # CROSS JOIN makes SQLite read the few matches first.
            source = "thread_metadata AS field CROSS JOIN thread"
            clauses.append(f"{matches} AND thread.thread_id = field.thread_id")
        else:
            clauses.append(
                "EXISTS (SELECT 1 FROM thread_metadata AS field "  # noqa: S608 - literals only
                f"WHERE {matches} AND field.thread_id = thread.thread_id)"
            )
        if len(params[f"filter{number}"] or "") > INDEXED_CHARS:  # type: ignore[arg-type]
            # Longer values are compared in full as JSON text, written the same way on both sides.
            clauses.append(f"json(thread.metadata -> :key{number}) = json(:value{number})")
            params |= {f"key{number}": f"$.{encode(key)}", f"value{number}": encode(value)}
    if query.status:
        clauses.append("thread.status = :status")
        params["status"] = query.status
    if query.ids:
        clauses.append("thread.thread_id IN (SELECT value FROM json_each(:ids))")
        params["ids"] = encode(list(query.ids))
    return source, (f"WHERE {' AND '.join(clauses)}" if clauses else ""), params
