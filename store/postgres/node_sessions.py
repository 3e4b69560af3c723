"""The sessions of nodes on a PostgreSQL server: finds living nodes and ends sessions. Blocking calls."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors

from store.errors import StoreLocked, StoreUnavailable
from store.nodes import Node
from store.postgres.connection import Connection, connect, unavailable

NODE, WORK = 0x5041524C, 0x5041524D
"""First halves of the nodes' advisory locks ("PARL" and the next number). The second half is the node's number."""

SHARED_USE = 0x5041524C4559_02
"""Key of the advisory lock that every node holds as a shared lock. A tool takes it to have the database for itself."""

ENDING_S = 5.0
"""How long the sessions of a process that just ended may take to close if they belong to another role, seconds."""

LET_GO_MS = 1_000
"""How long a tool waits for others to release a database, milliseconds."""

AFTER_START_S = 2.0
"""How long nodes have to come back after the server starts before they are ended, seconds."""

_NODES = """
SELECT node.number, node.name, node.started_at, is_ready = 1 AND is_leaving = 0 AS takes_work,
    coalesce(pid, 0) AS pid,
    coalesce(application_name, '') AS application_name,
    coalesce(extract(epoch FROM clock_timestamp() - state_change), 0)::float8 AS silent_s,
    extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8 AS server_s
FROM node LEFT JOIN (
    SELECT pid, objid, application_name, state_change FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock' AND objsubid = 2 AND classid = %s
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
) AS holder ON objid = node.number
WHERE ended_at IS NULL ORDER BY node.number
"""
_WORKING = """
SELECT pid FROM pg_locks
WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = %s AND objid = %s
    AND pid <> pg_backend_pid() AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_IS_FREE = """
SELECT CASE WHEN pg_try_advisory_lock_shared(%s::int, %s::int) THEN pg_advisory_unlock_shared(%s::int, %s::int)
    ELSE false END AS is_free
"""
_USERS = """
SELECT client_addr, backend_start AT TIME ZONE 'UTC' AS since FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND pid <> pg_backend_pid()
    AND (classid::bigint << 32) | objid::bigint = %s
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
ORDER BY backend_start LIMIT 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """A node that is not marked as ended.

    Attributes:
        pid: The server process of the node's own connection; 0 = it has none.
        application_name: The name of that connection.
        silent_s: Seconds since that connection was used.
        may_be_ended: The server has run long enough for nodes to come back.
    """

    node: Node
    pid: int
    application_name: str
    silent_s: float
    may_be_ended: bool


def list_nodes(connection: Connection) -> list[NodeState]:
    """Return the nodes that are not marked as ended, by number."""
    return [
        NodeState(
            node=Node(
                number=row["number"],
                name=row["name"],
                started_at=row["started_at"],
                takes_work=row["takes_work"],
            ),
            pid=row["pid"],
            application_name=row["application_name"],
            silent_s=row["silent_s"],
            may_be_ended=row["server_s"] > AFTER_START_S,
        )
        for row in connection.execute(_NODES, [NODE])
    ]


def try_lock(connection: Connection, key: int, number: int) -> bool:
    """Take an advisory lock of a node; False if another session has it."""
    locking = "SELECT pg_try_advisory_lock(%s::int, %s::int) AS is_mine"
    return bool(connection.execute(locking, [key, number]).fetchall()[0]["is_mine"])


def is_free(connection: Connection, key: int, number: int) -> bool:
    """Return whether an advisory lock of a node is free."""
    rows = connection.execute(_IS_FREE, [key, number, key, number]).fetchall()
    return bool(rows[0]["is_free"])


def end_work(connection: Connection, number: int) -> None:
    """End the sessions on which a node works and wait until they are gone. Raises StoreUnavailable."""
    give_up_at = time.monotonic() + ENDING_S
    while not try_lock(connection, WORK, number):
        try:
            terminate(
                connection, [row["pid"] for row in connection.execute(_WORKING, [WORK, number])]
            )
        except StoreUnavailable:
            if time.monotonic() > give_up_at:
                raise
        threading.Event().wait(0.01)
    connection.execute("SELECT pg_advisory_unlock(%s::int, %s::int)", [WORK, number])


def terminate(connection: Connection, pids: list[int]) -> None:
    """End sessions. Raises StoreUnavailable if this role may not."""
    try:
        for pid in pids:
            connection.execute("SELECT pg_terminate_backend(%s::int)", [pid])
    except errors.InsufficientPrivilege as error:
        raise StoreUnavailable(
            "The sessions of another Parley hold the database and cannot be ended by this role. "
            "Use the same role in every process."
        ) from error


def refuse_sole_use(connection: Connection) -> None:
    """Raise StoreLocked if a tool has the database for itself."""
    locking = "SELECT pg_try_advisory_lock_shared(%s) AS is_shared"
    if not connection.execute(locking, [SHARED_USE]).fetchall()[0]["is_shared"]:
        raise StoreLocked(_used(connection))


@contextmanager
def sole_use(parameters: dict[str, Any]) -> Iterator[None]:
    """Keep nodes away from a database inside the block.

    Raises:
        StoreLocked: a node, or another tool, uses it.
        StoreUnavailable: the server cannot be used.
    """
    with closing(connect(parameters)) as connection:
        try:
            # The server releases a lock a moment after its holder closes the connection.
            connection.execute("SELECT set_config('lock_timeout', %s, false)", [f"{LET_GO_MS}ms"])
            connection.execute("SELECT pg_advisory_lock(%s)", [SHARED_USE])
        except errors.LockNotAvailable as error:
            raise StoreLocked(_used(connection)) from error
        except psycopg.Error as error:
            raise unavailable(error) from error
        try:
            yield
        finally:
            with suppress(psycopg.Error):  # The server has released it by that time.
                connection.execute("SELECT pg_advisory_unlock(%s)", [SHARED_USE])


def _used(connection: Connection) -> str:
    user = next(iter(connection.execute(_USERS, [SHARED_USE])), None)
    where = ""
    if user is not None:
        host = user["client_addr"] or "the database's machine"
        where = f" (on {host}, since {user['since']:%Y-%m-%d %H:%M} UTC)"
    return f"Another Parley uses this PostgreSQL database{where}."
