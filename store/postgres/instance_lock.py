"""The lock that lets one process at a time use a PostgreSQL database; others wait for it as standbys.

The process that owns the database holds the advisory lock `OWNER` on a connection of its own, and every connection
on which it works holds `WORKER` shared. PostgreSQL releases both when a process ends, also after kill -9. A new owner
ends every session that still holds `WORKER` before it begins: a process that was frozen, and is owner no longer, has
no connection left when it wakes up, and gets no new one. Only the clock of the database counts.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import psycopg
from psycopg import errors

from store.config import StoreConfig
from store.errors import StoreLocked, StoreUnavailable
from store.postgres.connection import Connection, connect, parse_url, unavailable
from store.postgres.schema import check_version
from store.process_description import ProcessDescription

OWNER, WORKER = 0x5041524C, 0x5041524D
"""Keys of the advisory locks: "PARL" and the next number."""

HEARTBEAT_S = 0.5
FROZEN_S = 4.0
"""An owner whose connection was silent for so long, seconds, is frozen or cut off: its sessions are ended."""

CONFIRMED_S = FROZEN_S / 2
"""How long a sign of life of our own is proof enough that no other process has become the owner, seconds."""

POLL_S = 0.1
"""How often a standby tries to become the owner, seconds."""

ENDING_S = 5.0
"""How long the sessions of another role may take to end by themselves: those of a process that ended just now."""

RETURN_S = 2.0
"""After an outage of the database, seconds in which a standby leaves the lock to the owner of before."""

_HOLDERS = """
SELECT pid, client_addr, application_name, backend_start AT TIME ZONE 'UTC' AS since,
    extract(epoch FROM clock_timestamp() - state_change)::float8 AS silent_s
FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND granted AND classid = 0 AND objid = %s AND pid <> pg_backend_pid()
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""

_log = logging.getLogger(__name__)


class InstanceLock:
    """The ownership of a database by this process.

    Args:
        parameters: Of connections.
        on_lost: Called, once, on another thread when another process has become the owner.
        description: What other processes are told about this one.
    """

    def __init__(
        self,
        parameters: dict[str, Any],
        on_lost: Callable[[], None] | None = None,
        description: ProcessDescription | None = None,
    ) -> None:
        self.parameters = parameters
        self._description = description
        self._on_lost = on_lost
        self._connection: Connection | None = None
        self._is_owner = False
        self._confirmed_at = -math.inf
        self._mutex = threading.Lock()
        self._released = threading.Event()

    def take(self, *, ends_frozen_owner: bool = False) -> None:
        """Become the owner, and stay it until `release`.

        Args:
            ends_frozen_owner: End the sessions of an owner that is silent; the next attempt succeeds.

        Raises:
            StoreLocked: another process is the owner.
            StoreUnavailable: the server cannot be used.
        """
        try:
            self.ensure()
        except StoreLocked:
            if ends_frozen_owner:
                self._end_frozen_owner()
            raise
        threading.Thread(target=self._beat, name="database-owner", daemon=True).start()

    @property
    def is_confirmed(self) -> bool:
        """Whether this process showed so lately that it is alive that no other can have become the owner."""
        return time.monotonic() - self._confirmed_at < CONFIRMED_S

    def ensure(self) -> None:
        """Return if this process is the owner; it becomes it again if only its connection was lost.

        Raises:
            StoreLocked: another process is the owner.
            StoreUnavailable: the server cannot be used.
        """
        with self._mutex:
            if self._released.is_set():
                raise StoreUnavailable("The database is closed.")
            started_at = time.monotonic()
            if self._is_alive():
                self._confirmed_at = started_at
                return
            self._connection = self._connection or self._connect()
            try:
                self._become_owner(self._connection)
                self._confirmed_at = started_at
            except psycopg.Error as error:
                self._close()
                raise unavailable(error) from error

    def connect_worker(self) -> Connection:
        """Return a connection to work on; it is ended before another process becomes the owner.

        Raises:
            StoreLocked: another process is the owner.
            StoreUnavailable: the server cannot be used.
        """
        self.ensure()
        connection = connect(self.parameters)
        try:
            # In this order: whoever becomes the owner after the second line finds the lock of the first one.
            connection.execute("SELECT pg_advisory_lock_shared(%s)", [WORKER])
            self.ensure()
        except psycopg.Error as error:
            connection.close()
            raise unavailable(error) from error
        except StoreUnavailable:
            connection.close()
            raise
        return connection

    def release(self) -> None:
        """Stop being the owner; when this returns, another process can be."""
        self._released.set()
        with self._mutex:
            if self._connection is not None and self._is_owner:
                # A session that is only closed keeps its locks until the server notices.
                with suppress(psycopg.Error):
                    self._connection.execute("SELECT pg_advisory_unlock(%s)", [OWNER])
            self._close()

    def _beat(self) -> None:
        """Show that this process is alive, and notice when it is the owner no longer."""
        while not self._released.wait(HEARTBEAT_S):
            try:
                self.ensure()
            except StoreLocked:
                if self._on_lost is not None:
                    self._on_lost()
                return
            except StoreUnavailable:
                continue

    def _connect(self) -> Connection:
        """Return the connection that shows other processes which one this is."""
        if self._description is None:
            return connect(self.parameters)
        name = self._description.application_name
        return connect({**self.parameters, "application_name": name})

    def _is_alive(self) -> bool:
        """Return whether this process is the owner and its connection works; forget a connection that does not."""
        try:
            if self._connection is not None:
                self._connection.execute("SELECT 1")
        except psycopg.Error:
            self._close()
        return self._is_owner

    def _become_owner(self, connection: Connection) -> None:
        rows = connection.execute("SELECT pg_try_advisory_lock(%s) AS is_mine", [OWNER])
        if not rows.fetchall()[0]["is_mine"]:
            raise _locked(connection, self._description)
        _end_workers(connection)
        self._is_owner = True

    def _end_frozen_owner(self) -> None:
        with self._mutex:
            if self._connection is None:
                return
            try:
                holders = self._connection.execute(_HOLDERS, [OWNER]).fetchall()
                silent = [row["pid"] for row in holders if row["silent_s"] > FROZEN_S]
                _terminate(self._connection, silent)
            except psycopg.Error:
                self._close()
                return
        if silent:
            _log.warning("The owner of the database did not respond; its sessions were ended.")

    def _close(self) -> None:
        self._is_owner = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None


async def wait_for_ownership(
    config: StoreConfig,
    description: ProcessDescription,
    on_lost: Callable[[], None],
    on_standby: Callable[[], None],
) -> InstanceLock:
    """Return the ownership of a database, once no other process has it.

    An owner that is frozen, or cut off from the database, loses it. `on_standby` is called, once, if there is one.
    Cancel to stop waiting.

    Raises:
        SchemaTooNew: a newer Parley wrote the database; this process could never take over.
        StoreUnavailable: the URL is wrong, or the server cannot be used at the first attempt.
    """
    lock = InstanceLock(parse_url(config.url), on_lost, description)
    is_owner = is_standby = False
    try:
        while not is_owner:
            try:
                await anyio.to_thread.run_sync(partial(lock.take, ends_frozen_owner=True))
            except StoreLocked as error:
                if not is_standby:
                    await anyio.to_thread.run_sync(check_version, lock.parameters)
                    _log.warning(
                        "%s This process is a standby: it takes over when that ends.", error
                    )
                    on_standby()
                is_standby = True
                await anyio.sleep(POLL_S)
            except StoreUnavailable as error:
                if not is_standby:
                    raise
                _log.warning("%s", error)
                await anyio.sleep(RETURN_S)
            else:
                is_owner = True
    finally:
        if not is_owner:
            lock.release()
    return lock


def _end_workers(connection: Connection) -> None:
    """End the sessions of earlier owners and wait until they are gone."""
    give_up_at = time.monotonic() + ENDING_S
    while not _has_no_workers(connection):
        try:
            _terminate(connection, [row["pid"] for row in connection.execute(_HOLDERS, [WORKER])])
        except StoreUnavailable:
            if time.monotonic() > give_up_at:
                raise
        threading.Event().wait(0.01)
    connection.execute("SELECT pg_advisory_unlock(%s)", [WORKER])


def _has_no_workers(connection: Connection) -> bool:
    rows = connection.execute("SELECT pg_try_advisory_lock(%s) AS is_free", [WORKER])
    return bool(rows.fetchall()[0]["is_free"])


def _terminate(connection: Connection, pids: list[int]) -> None:
    try:
        for pid in pids:
            connection.execute("SELECT pg_terminate_backend(%s::int)", [pid])
    except errors.InsufficientPrivilege as error:
        raise StoreUnavailable(
            "The sessions of another Parley hold the database and cannot be ended by this role. "
            "Use the same role in every process."
        ) from error


def _locked(connection: Connection, description: ProcessDescription | None) -> StoreLocked:
    holder = next(iter(connection.execute(_HOLDERS, [OWNER])), None)
    where = differences = ""
    if holder is not None:
        if description is not None:
            differences = description.differences(holder["application_name"])
        host = holder["client_addr"] or "the database's machine"
        where = f" (on {host}, since {holder['since']:%Y-%m-%d %H:%M} UTC)"
    text = f"Another Parley uses this PostgreSQL database{where}. {differences}"
    return StoreLocked(text.strip())
