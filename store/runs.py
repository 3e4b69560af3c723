"""Runs of the LangGraph-compatible API: request, thread, status and outcome."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from store.database import Database, Row, Transaction, Value
from store.errors import RowNotFound
from store.rows import from_row
from store.threads import ThreadStatus, encode, missing_thread

RunStatus = Literal["pending", "running", "success", "error", "timeout", "interrupted"]
MultitaskStrategy = Literal["reject", "enqueue", "interrupt", "rollback"]

_BUSY = """
UPDATE thread SET status = 'busy', updated_at = :now, metadata = json_patch(metadata, :tags)
WHERE thread_id = :thread_id RETURNING thread_id
"""
_NEW_THREAD = """
INSERT INTO thread (thread_id, created_at, updated_at, state_updated_at, metadata, status)
VALUES (:thread_id, :now, :now, :now, :tags, 'busy')
"""
_INSERT = """
INSERT INTO run (run_id, thread_id, assistant_id, status, metadata, kwargs, multitask_strategy,
    created_at, updated_at)
VALUES (:run_id, :thread_id, :assistant_id, :status, :metadata, :kwargs, :multitask, :now, :now)
"""
_RUNNING = "UPDATE run SET status = 'running', updated_at = :now WHERE run_id = :run_id"
_BUSY_AGAIN = """
UPDATE thread SET status = 'busy', updated_at = :now
WHERE thread_id = (SELECT thread_id FROM run WHERE run_id = :run_id)
"""
_END = "UPDATE run SET status = :status, error = :error, updated_at = :now WHERE run_id = :run_id"
_END_THREAD = """
UPDATE thread SET status = :status, error = :error, interrupts = :interrupts, updated_at = :now,
    state_updated_at = :now, title = coalesce(:title, title)
WHERE thread_id = :thread_id
"""
_UNTOUCHED = """
UPDATE thread SET updated_at = :now, status = CASE
    WHEN :status = 'busy' THEN 'busy'
    WHEN error IS NOT NULL THEN 'error'
    WHEN interrupts <> '{}' THEN 'interrupted'
    ELSE :status END
WHERE thread_id = :thread_id
"""
_TAGS_BACK = """
UPDATE thread SET metadata = json_patch(metadata, last.tags) FROM (
    SELECT json_object('graph_id', metadata ->> '$.graph_id', 'assistant_id', assistant_id) AS tags
    FROM run WHERE thread_id = :thread_id ORDER BY seq DESC LIMIT 1
) AS last
WHERE thread_id = :thread_id
"""
_DELETE = "DELETE FROM run WHERE run_id = :run_id AND thread_id = :thread_id RETURNING run_id"
_GET = "SELECT * FROM run WHERE run_id = :run_id AND thread_id = :thread_id"
_LIST = """
SELECT * FROM run WHERE thread_id = :thread_id AND (CAST(:status AS TEXT) IS NULL OR status = :status)
ORDER BY seq DESC LIMIT :limit OFFSET :offset
"""
_LEFT_RUNS = """
UPDATE run SET status = 'interrupted', error = :error, updated_at = :now
WHERE status IN ('pending', 'running') RETURNING run_id
"""
_LEFT_THREADS = """
UPDATE thread SET status = CASE WHEN interrupts <> '{}' THEN 'interrupted' ELSE 'idle' END, updated_at = :now
WHERE status = 'busy'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A row. Times are Unix seconds; `kwargs` is the request; `error` is {"error", "message"}."""

    run_id: str
    thread_id: str
    assistant_id: str
    status: RunStatus
    metadata: dict[str, Any]
    kwargs: dict[str, Any]
    multitask_strategy: MultitaskStrategy
    created_at: float
    updated_at: float
    error: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """The outcome of a run, and the new state of its thread.

    Attributes:
        delete_run: Delete the run's row.
        keep_thread: The thread is what it was before the run: its error, its title and what it asks stay.
    """

    run_id: str
    thread_id: str
    status: RunStatus
    thread_status: ThreadStatus
    error: Mapping[str, str] | None = None
    interrupts: Mapping[str, Any] = field(default_factory=dict)
    title: str | None = None
    delete_run: bool = False
    keep_thread: bool = False


class RunStore:
    """The run table, and the columns of threads that runs change."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, run: Run, *, tags: Mapping[str, str], create_thread: bool) -> None:
        """Add a run and mark its thread busy, in one transaction.

        Args:
            run: The row; `created_at` is the time of both changes.
            tags: Merged into the thread's metadata (graph and assistant id).
            create_thread: Make the thread if there is none.

        Raises:
            RowNotFound: there is no such thread, and it was not to be made.
        """
        params = _params(run)
        thread: dict[str, Value] = {
            "thread_id": run.thread_id,
            "now": run.created_at,
            "tags": encode(tags),
        }

        def work(tx: Transaction) -> None:
            if not tx.run(_BUSY, thread):
                if not create_thread:
                    raise missing_thread(run.thread_id)
                tx.run(_NEW_THREAD, thread)
            tx.run(_INSERT, params)

        await self._database.transaction(work)

    async def mark_running(self, run_id: str, *, now: float) -> None:
        """Record that a pending run started."""
        params: dict[str, Value] = {"run_id": run_id, "now": now}

        def work(tx: Transaction) -> None:
            tx.run(_RUNNING, params)
            tx.run(_BUSY_AGAIN, params)

        await self._database.transaction(work)

    async def finish(self, end: RunOutcome, *, now: float) -> None:
        """Record the outcome of a run and the new state of its thread, in one transaction."""
        error = encode(end.error) if end.error else None
        run: dict[str, Value] = {
            "run_id": end.run_id,
            "status": end.status,
            "error": error,
            "now": now,
        }
        thread: dict[str, Value] = {
            "thread_id": end.thread_id,
            "status": end.thread_status,
            "error": error,
            "interrupts": encode(end.interrupts),
            "title": end.title,
            "now": now,
        }

        def work(tx: Transaction) -> None:
            if end.delete_run:
                tx.run(_DELETE, {"run_id": end.run_id, "thread_id": end.thread_id})
                tx.run(_TAGS_BACK, thread)
            else:
                tx.run(_END, run)
            tx.run(_UNTOUCHED if end.keep_thread else _END_THREAD, thread)

        await self._database.transaction(work)

    async def get(self, thread_id: str, run_id: str) -> Run:
        """Return one run of a thread. Raises RowNotFound."""
        rows = await self._database.read(_GET, {"run_id": run_id, "thread_id": thread_id})
        if not rows:
            raise RowNotFound(f"Run with ID {run_id} not found")
        return _run(rows[0])

    async def list_by_thread(
        self, thread_id: str, *, status: str | None = None, limit: int = 10, offset: int = 0
    ) -> list[Run]:
        """Return a thread's runs, newest first."""
        params: dict[str, Value] = {
            "thread_id": thread_id,
            "status": status,
            "limit": limit,
            "offset": offset,
        }
        return [_run(row) for row in await self._database.read(_LIST, params)]

    async def delete(self, thread_id: str, run_id: str) -> bool:
        """Delete one run's row; False if there is none."""
        params: dict[str, Value] = {"run_id": run_id, "thread_id": thread_id}
        return bool(await self._database.transaction(lambda tx: tx.run(_DELETE, params)))

    async def interrupt_unfinished(self, *, now: float) -> int:
        """Mark the runs of a dead process as interrupted and their threads as idle; return how many runs."""
        error = encode({"error": "Interrupted", "message": "The server stopped during this run."})

        def work(tx: Transaction) -> int:
            left = tx.run(_LEFT_RUNS, {"error": error, "now": now})
            tx.run(_LEFT_THREADS, {"now": now})
            return len(left)

        return await self._database.transaction(work)


def _params(run: Run) -> dict[str, Value]:
    return {
        "run_id": run.run_id,
        "thread_id": run.thread_id,
        "assistant_id": run.assistant_id,
        "status": run.status,
        "metadata": encode(run.metadata),
        "kwargs": encode(run.kwargs),
        "multitask": run.multitask_strategy,
        "now": run.created_at,
    }


def _run(row: Row) -> Run:
    error = orjson.loads(row["error"]) if row["error"] else None
    parsed = {name: orjson.loads(row[name]) for name in ("metadata", "kwargs")}
    return from_row(Run, row, error=error, **parsed)
