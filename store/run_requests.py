"""Requests of runs, stored so that a run whose process ended can start again, on another node or after a crash."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from store.database import Database, Params, Statement, Transaction
from store.rows import from_row

HANDED_OVER = -1
"""Used instead of a node's number: no node executes the run, because its node stopped and handed it over."""

_INSERT = """
INSERT INTO run_request (run_id, thread_id, node, body, created_at) VALUES (:run_id, :thread_id, :node, :body, :now)
"""
_DELETE = "DELETE FROM run_request WHERE run_id = :run_id"
# A SQLite file has no node rows: all its requests are abandoned, because the process that opens it has no runs yet.
_IS_ABANDONED = "run_request.node NOT IN (SELECT number FROM node WHERE ended_at IS NULL)"
_LIST_ABANDONED = (
    f"SELECT DISTINCT coalesce(thread_id, run_id) AS name FROM run_request WHERE {_IS_ABANDONED}"  # noqa: S608 - literals only
)
_FIND_ABANDONED = f"{_LIST_ABANDONED} AND (thread_id = :thread_id OR run_id = :run_id)"
_LOCK_THREAD = "SELECT thread_id FROM thread WHERE thread_id = :name /* FOR UPDATE */"
_TAKE = f"""
UPDATE run_request SET node = :node, attempt = attempt + 1,
    crashes = crashes + CASE WHEN node = {HANDED_OVER} THEN 0 ELSE 1 END
WHERE (thread_id = :name OR (run_id = :name AND thread_id IS NULL)) AND {_IS_ABANDONED} RETURNING run_id
"""  # noqa: S608 - literals only
_TAKE_RUNS = """
UPDATE run SET node = :node WHERE run_id IN (SELECT run_id FROM run_request WHERE thread_id = :name)
"""
_READ = """
SELECT run_request.*, run.kwargs FROM run_request LEFT JOIN run ON run.run_id = run_request.run_id
WHERE run_request.thread_id = :name OR (run_request.run_id = :name AND run_request.thread_id IS NULL)
ORDER BY run.seq
"""
_CANCEL = (
    "UPDATE run_request SET cancel_action = coalesce(cancel_action, :action) WHERE run_id = :run_id"
)
_ADD_MESSAGES = "UPDATE run_request SET messages = messages || :messages WHERE run_id = :run_id"
_HAND_OVER = f"UPDATE run_request SET node = {HANDED_OVER} WHERE run_id = :run_id"  # noqa: S608 - literals only
_HAND_OVER_RUN = f"UPDATE run SET node = {HANDED_OVER} WHERE run_id = :run_id"  # noqa: S608 - literals only


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonedRun:
    """A run whose process ended before the run did.

    Attributes:
        thread_id: None = a run without a thread.
        attempt: The number of the next attempt, 2 or more.
        crashes: Number of attempts that ended with a crash of their process.
        body: The stored request, JSON. Another version may have written it.
        kwargs: From the run's row, JSON; None = it has none.
        created_at: When it was requested, Unix seconds.
        cancel_action: How to cancel it; None = it is not canceled.
        messages: The messages injected into it, each one line of JSON.
    """

    run_id: str
    thread_id: str | None
    attempt: int
    crashes: int
    body: str
    kwargs: str | None
    created_at: float
    cancel_action: str | None
    messages: str


class RunRequestStore:
    """The run_request table: unfinished runs, which another process continues if theirs ends."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def insert_statement(
        self, run_id: str, thread_id: str | None, body: str, *, now: float
    ) -> Statement:
        """Return the statement that adds the request of one of this node's runs. For other stores' transactions."""
        return _INSERT, {
            "run_id": run_id,
            "thread_id": thread_id,
            "node": self._database.nodes.number,
            "body": body,
            "now": now,
        }

    async def create(self, run_id: str, body: str, *, now: float) -> None:
        """Add the request of a run that has no row in the run table. Raises StoreUnavailable."""
        await self._database.execute(*self.insert_statement(run_id, None, body, now=now))

    @staticmethod
    def delete_statement(run_id: str) -> Statement:
        """Return the statement that deletes the request of a run that ends. For other stores' transactions."""
        return _DELETE, {"run_id": run_id}

    async def list_abandoned(self) -> list[str]:
        """Return the names that `take` accepts: threads with runs of dead processes, or IDs of runs.

        Raises StoreUnavailable.
        """
        return [str(row["name"]) for row in await self._database.read(_LIST_ABANDONED)]

    async def find_abandoned(self, thread_id: str, run_id: str) -> list[str]:
        """Like `list_abandoned`, but for one thread, or for the thread of a run. Raises StoreUnavailable."""
        params: Params = {"thread_id": thread_id, "run_id": run_id}
        return [str(row["name"]) for row in await self._database.read(_FIND_ABANDONED, params)]

    async def take(self, name: str) -> list[AbandonedRun]:
        """Take a dead process's runs on a thread, or one run without a thread.

        Returns:
            The runs to start again, oldest first: all runs of the thread, or none if another node was faster.

        Raises:
            StoreUnavailable: No run was taken.
        """
        params: Params = {"name": name, "node": self._database.nodes.number}

        def work(tx: Transaction) -> list[AbandonedRun]:
            tx.run(_LOCK_THREAD, params)
            taken = {row["run_id"] for row in tx.run(_TAKE, params)}
            if not taken:
                return []
            tx.run(_TAKE_RUNS, params)
            return [
                from_row(AbandonedRun, row)
                for row in tx.run(_READ, params)
                if row["run_id"] in taken
            ]

        return await self._database.transaction(work)

    async def cancel(self, run_ids: Iterable[str], action: str) -> None:
        """Make the nodes that continue these runs cancel them; the first call counts. Raises StoreUnavailable."""
        statements: list[Statement] = [
            (_CANCEL, {"run_id": run_id, "action": action}) for run_id in run_ids
        ]

        def work(tx: Transaction) -> None:
            tx.run_all(statements)

        await self._database.transaction(work)

    async def add_messages(self, run_id: str, messages: str) -> None:
        """Add messages that were injected into a run, each one line of JSON. Raises StoreUnavailable."""
        await self._database.execute(_ADD_MESSAGES, {"run_id": run_id, "messages": messages})

    async def hand_over(self, run_ids: Sequence[str]) -> None:
        """Allow other nodes to continue runs that no longer run here. Raises StoreUnavailable."""
        params: list[Params] = [{"run_id": run_id} for run_id in run_ids]
        statements = [(sql, one) for one in params for sql in (_HAND_OVER, _HAND_OVER_RUN)]

        def work(tx: Transaction) -> None:
            tx.run_all(statements)

        await self._database.transaction(work)
