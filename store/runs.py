"""Runs of the LangGraph-compatible API: request, thread, status and outcome."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from store.database import Database, Params, Row, Statement, Transaction, Value
from store.errors import RowConflict, RowNotFound
from store.rows import from_row
from store.run_requests import RunRequestStore
from store.run_webhooks import RunWebhook, RunWebhookStore
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
INSERT INTO run (run_id, thread_id, assistant_id, status, metadata, kwargs, multitask_strategy, node, start_key,
    created_at, updated_at)
VALUES (:run_id, :thread_id, :assistant_id, :status, :metadata, :kwargs, :multitask, :node, :start_key, :now, :now)
ON CONFLICT (thread_id, start_key) WHERE start_key IS NOT NULL AND status IN ('pending', 'running', 'success')
    DO NOTHING
RETURNING run_id
"""
_FIND_STARTED = """
SELECT run_id FROM run
WHERE thread_id = :thread_id AND start_key = :start_key AND status IN ('pending', 'running', 'success')
"""
_RUNNING = "UPDATE run SET status = 'running', updated_at = :now WHERE run_id = :run_id"
_BUSY_AGAIN = """
UPDATE thread SET status = 'busy', updated_at = :now
WHERE thread_id = (SELECT thread_id FROM run WHERE run_id = :run_id) AND status <> 'busy'
"""
# Lock the thread before a run ends. If two runs end at once, the second one sees that it is the last.
_LOCK_THREAD = "SELECT thread_id FROM thread WHERE thread_id = :thread_id /* FOR UPDATE */"
_END = "UPDATE run SET status = :status, error = :error, updated_at = :now WHERE run_id = :run_id"
_HAS_RUNS = "EXISTS (SELECT 1 FROM run WHERE run.thread_id = thread.thread_id AND run.status IN ('pending', 'running'))"
_END_THREAD = f"""
UPDATE thread SET status = CASE WHEN {_HAS_RUNS} THEN 'busy' ELSE :status END, error = :error,
    interrupts = :interrupts, updated_at = :now, state_updated_at = :now, title = coalesce(:title, title)
WHERE thread_id = :thread_id
"""  # noqa: S608 - literals only
_UNTOUCHED = f"""
UPDATE thread SET updated_at = :now, status = CASE
    WHEN {_HAS_RUNS} THEN 'busy'
    WHEN error IS NOT NULL THEN 'error'
    WHEN interrupts <> '{{}}' THEN 'interrupted'
    ELSE :status END
WHERE thread_id = :thread_id
"""  # noqa: S608 - literals only
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
_LIST_THESE = """
SELECT * FROM run WHERE thread_id = :thread_id AND run_id IN (SELECT value FROM json_each(:run_ids))
"""
_LIVING = "(SELECT number FROM node WHERE ended_at IS NULL)"
# Runs that no process executes anymore and that no process will start again. A SQLite file has no node rows: there,
# these are all runs that only their clients can start again, because the process that opens the file has no runs yet.
_IS_LOST = f"""
status IN ('pending', 'running') AND node NOT IN {_LIVING}
    AND NOT EXISTS (SELECT 1 FROM run_request WHERE run_request.run_id = run.run_id)
"""  # noqa: S608 - literals only
_LOCK_THREADS_OF_LOST_RUNS = f"""
SELECT thread_id FROM thread WHERE thread_id IN (SELECT thread_id FROM run WHERE {_IS_LOST})
ORDER BY thread_id /* FOR UPDATE */
"""  # noqa: S608 - literals only
_INTERRUPT_LOST = f"""
UPDATE run SET status = 'interrupted', error = :error, updated_at = :now WHERE {_IS_LOST} RETURNING run_id
"""  # noqa: S608 - literals only
_UNBUSY = f"""
UPDATE thread SET status = CASE WHEN interrupts <> '{{}}' THEN 'interrupted' ELSE 'idle' END, updated_at = :now
WHERE status = 'busy' AND NOT {_HAS_RUNS}
"""  # noqa: S608 - literals only
_UNBUSY_THREAD = f"{_UNBUSY.rstrip()} AND thread_id = :thread_id"

# For several nodes, so on PostgreSQL only.
_SHOWN = f"*, CASE WHEN {_IS_LOST} THEN 'interrupted' ELSE status END AS shown_status"
_GET_SHARED = _GET.replace("*", _SHOWN, 1)
_LIST_SHARED = _LIST.replace("*", _SHOWN, 1)
_LIST_THESE_SHARED = _LIST_THESE.replace("*", _SHOWN, 1)
_FIND_OTHER_NODE = """
SELECT node FROM run WHERE thread_id = :thread_id AND node <> :node AND status IN ('pending', 'running') LIMIT 1
"""
_FIND_THREAD_NODE = """
SELECT node FROM run WHERE thread_id = :thread_id AND status IN ('pending', 'running') LIMIT 1
"""
_FIND_RUN_NODE = """
SELECT node, status FROM run WHERE run_id = :run_id
UNION ALL SELECT node, 'running' FROM run_request WHERE run_id = :run_id AND thread_id IS NULL
"""


class ThreadAtOtherNode(RowConflict):
    """Another node executes runs on this thread, or was executing some when it ended.

    Attributes:
        node: Its number, or `HANDED_OVER`.
    """

    def __init__(self, node: int) -> None:
        super().__init__("Another node executes a run on this thread.")
        self.node = node


class RunExists(RowConflict):
    """A run with the same start key is pending, running or successful.

    Attributes:
        run_id: Its id.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__("A run with this start key already exists.")
        self.run_id = run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A row of the run table. Times are Unix seconds; `kwargs` is the request; `error` is {"error", "message"}.

    `start_key` is unique among a thread's pending, running and successful runs; None = it has none.
    """

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
    start_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """The outcome of a run, and the new state of its thread.

    Attributes:
        thread_status: The thread's new status. If another of its runs is pending or running, it stays `busy` instead.
        delete_run: Delete the run's row.
        keep_thread: Whether the thread keeps its error, title and interrupts from before the run.
        webhook: A webhook call, stored together with the outcome.
        has_request: The run's request is stored and must be deleted.
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
    webhook: RunWebhook | None = None
    has_request: bool = False


class RunStore:
    """The run table, and the columns of threads that runs change.

    Attributes:
        webhooks: Webhook calls about ended runs.
        requests: The requests of unfinished runs, to start them again.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.webhooks = RunWebhookStore(database)
        self.requests = RunRequestStore(database)

    async def create(
        self,
        run: Run,
        *,
        tags: Mapping[str, str],
        create_thread: bool,
        request: str | None = None,
        undone: Container[str] = (),
    ) -> None:
        """Add a run and mark its thread busy, in one transaction.

        Args:
            run: The row; its `created_at` is the time of both changes.
            tags: Merged into the thread's metadata (graph and assistant id).
            create_thread: Create the thread if it does not exist.
            request: The request to start the run again, JSON; None = it is not started again.
            undone: Runs whose start is being undone. One with the same start key does not conflict.

        Raises:
            RowNotFound: the thread does not exist and `create_thread` is false.
            RunExists: a run of this thread has the start key; nothing is changed.
            ThreadAtOtherNode: another node executes runs on this thread, or ended and left some there.
        """
        node = self._database.nodes.number
        params = {**_params(run), "node": node}
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
            # The thread's row is locked, so two nodes cannot both find that no other node executes runs on it.
            if node and (found := tx.run(_FIND_OTHER_NODE, params)):
                raise ThreadAtOtherNode(found[0]["node"])
            if not tx.run(_INSERT, params):
                [started] = tx.run(_FIND_STARTED, params)
                if started["run_id"] not in undone:
                    raise RunExists(started["run_id"])
                tx.run(_DELETE, {"run_id": started["run_id"], "thread_id": run.thread_id})
                tx.run(_INSERT, params)
            if request is not None:
                stored = self.requests.insert_statement(
                    run.run_id, run.thread_id, request, now=run.created_at
                )
                tx.run(*stored)

        await self._database.transaction(work)

    async def mark_running(self, run_id: str, *, now: float) -> None:
        """Record that a pending run started."""
        params: dict[str, Value] = {"run_id": run_id, "now": now}

        def work(tx: Transaction) -> None:
            tx.run_all([(_RUNNING, params), (_BUSY_AGAIN, params)])

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
            # SQLite has one writer.
            statements: list[Statement] = (
                [(_LOCK_THREAD, thread)] if self._database.nodes.number else []
            )
            if end.delete_run:
                deleted: Params = {"run_id": end.run_id, "thread_id": end.thread_id}
                statements += [(_DELETE, deleted), (_TAGS_BACK, thread)]
            else:
                statements.append((_END, run))
            if end.has_request:
                statements.append(self.requests.delete_statement(end.run_id))
            if end.webhook is not None:
                statements.append(self.webhooks.insert_statement(end.webhook))
            tx.run_all([*statements, (_UNTOUCHED if end.keep_thread else _END_THREAD, thread)])

        await self._database.transaction(work)

    async def get(self, thread_id: str, run_id: str) -> Run:
        """Return one run of a thread. Raises RowNotFound."""
        rows = await self._read(_GET, _GET_SHARED, {"run_id": run_id, "thread_id": thread_id})
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
        return [_run(row) for row in await self._read(_LIST, _LIST_SHARED, params)]

    async def list_these(self, thread_id: str, run_ids: Sequence[str]) -> list[Run]:
        """Return the runs of a thread that have these IDs, in any order."""
        params: dict[str, Value] = {"thread_id": thread_id, "run_ids": encode(list(run_ids))}
        return [_run(row) for row in await self._read(_LIST_THESE, _LIST_THESE_SHARED, params)]

    async def _read(self, alone: str, shared: str, params: dict[str, Value]) -> list[Row]:
        """Read runs. Runs that `interrupt_lost` will interrupt are shown as interrupted already.

        `alone`, `shared`: the statement for a single process, and the one for several processes that share the
        database.
        """
        return await self._database.read(shared if self._database.nodes.number else alone, params)

    async def delete(self, thread_id: str, run_id: str) -> bool:
        """Delete one run's row; False if it does not exist."""
        params: dict[str, Value] = {"run_id": run_id, "thread_id": thread_id}
        return bool(await self._database.transaction(lambda tx: tx.run(_DELETE, params)))

    async def find_thread_node(self, thread_id: str) -> int | None:
        """Return the number of the node that executes a thread's runs; None = it has none."""
        rows = await self._database.read(_FIND_THREAD_NODE, {"thread_id": thread_id})
        return int(rows[0]["node"]) if rows else None

    async def check_thread(self, thread_id: str) -> None:
        """Raise ThreadAtOtherNode if another node executes runs on a thread, or ended and left some there."""
        if node := self._database.nodes.number:
            params: dict[str, Value] = {"thread_id": thread_id, "node": node}
            if found := await self._database.read(_FIND_OTHER_NODE, params):
                raise ThreadAtOtherNode(found[0]["node"])

    async def find_run_node(self, run_id: str) -> tuple[int, RunStatus] | None:
        """Return the number of the node that executes or executed a run, and the run's status; None = unknown run."""
        rows = await self._database.read(_FIND_RUN_NODE, {"run_id": run_id})
        return (int(rows[0]["node"]), rows[0]["status"]) if rows else None

    async def interrupt_lost(self, *, now: float) -> int:
        """Mark runs of dead processes as interrupted unless they are started again. Return their number."""
        error = encode({"error": "Interrupted", "message": "The server stopped during this run."})
        params: dict[str, Value] = {"error": error, "now": now}

        def work(tx: Transaction) -> int:
            threads = tx.run(_LOCK_THREADS_OF_LOST_RUNS)
            lost = tx.run(_INTERRUPT_LOST, params)
            if self._database.nodes.number == 0:
                # Nothing runs yet, so check all threads. If several runs ended at the same time, perhaps none of them
                # saw that it was the last.
                tx.run(_UNBUSY, params)
            for thread in threads:
                tx.run(_UNBUSY_THREAD, {"now": now, "thread_id": thread["thread_id"]})
            return len(lost)

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
        "start_key": run.start_key,
        "now": run.created_at,
    }


def _run(row: Row) -> Run:
    error = orjson.loads(row["error"]) if row["error"] else None
    parsed = {name: orjson.loads(row[name]) for name in ("metadata", "kwargs")}
    status = row.get("shown_status", row["status"])
    return from_row(Run, row, error=error, status=status, **parsed)
