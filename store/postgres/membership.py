"""A process as a node of a PostgreSQL database: it shows that it is alive, and ends nodes that are not.

A node inserts its row and holds the advisory lock (`NODE`, its number) on a separate connection. Every connection on
which it works holds (`WORK`, its number) as a shared lock. PostgreSQL releases both when a process ends, even after
kill -9. If a node finds that another one no longer holds its first lock, it takes this lock, ends every session that
holds the second lock, and then marks the row as ended. So a process that was frozen wakes up without connections,
cannot get new ones, and has written nothing since its work failed over. Only the clock of the database counts.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, LiteralString

import psycopg

from store.errors import StoreLocked, StoreUnavailable
from store.nodes import Node
from store.postgres.connection import Connection, connect, unavailable
from store.postgres.node_sessions import (
    NODE,
    WORK,
    NodeState,
    end_work,
    is_free,
    list_nodes,
    refuse_sole_use,
    terminate,
    try_lock,
)
from store.process_description import ProcessDescription

HEARTBEAT_S = 0.25
"""How often a node shows that it is alive and checks all others, seconds."""

PROBE_S = 0.08
"""How often a node checks whether its neighbor has ended, seconds. Every failover begins with this check."""

FROZEN_S = 4.0
"""After this many seconds of silence, a node counts as frozen or cut off, and another node ends its sessions."""

CONFIRMED_S = FROZEN_S / 2
"""For how long a heartbeat of this node proves that no other node has ended it, seconds."""

HOLD_S = 1.0
"""How long the server may take to end the earlier session of this node, seconds."""

RETURN_S = FROZEN_S
"""How long other nodes have to come back after a database outage before they are ended, seconds."""

_INSERT = """
INSERT INTO node (name, started_at, is_ready) VALUES (%s, extract(epoch FROM clock_timestamp()), 0) RETURNING number
"""
_FORGET = "DELETE FROM node WHERE ended_at < extract(epoch FROM clock_timestamp()) - 30 * 86400"
_HAS_ENDED = """
SELECT NOT EXISTS (SELECT 1 FROM node WHERE number = %s AND ended_at IS NULL) AS has_ended
"""
_END = """
UPDATE node SET ended_at = extract(epoch FROM clock_timestamp()) WHERE number = %s AND ended_at IS NULL
"""
_MARK_READY = "UPDATE node SET is_ready = 1 WHERE number = %s"
_LEAVE = "UPDATE node SET is_leaving = 1 WHERE number = %s"
_LOCK_NAME = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0)) AS is_mine"
_UNLOCK_NAME = "SELECT pg_advisory_unlock(hashtextextended(%s, 0))"

log = logging.getLogger(__name__)


class MemberNode:
    """The node that this process is. Calls block, and may come from any thread.

    Args:
        parameters: The connection parameters.
        description: Tells other nodes about this one.
        on_lost: Called, once, on a worker thread when other nodes have ended this one.
        heartbeat_s: How often it checks all other nodes, seconds.

    Attributes:
        number: The number of this node; 0 before `join`.
        living: The nodes that are alive, as of the last heartbeat.
        on_change: Called on a worker thread when that list changes or this node has ended another one.
    """

    def __init__(
        self,
        parameters: dict[str, Any],
        description: ProcessDescription,
        on_lost: Callable[[], None] | None = None,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self.parameters = parameters
        self.number = 0
        self.living: Sequence[Node] = ()
        self.on_change: Callable[[], None] | None = None
        self._description = description
        self._on_lost = on_lost
        self._heartbeat_s = heartbeat_s
        self._connection: Connection | None = None
        self._confirmed_at = self._returned_at = -math.inf
        self._names: dict[str, Callable[[], None]] = {}
        self._leaves = False
        self._known: dict[int, str] = {}
        self._mutex = threading.Lock()
        self._released = threading.Event()

    def join(self) -> None:
        """Become a node and end dead ones. It stays a node until `release`.

        Raises:
            StoreLocked: a tool needs the database for itself.
            StoreUnavailable: the server cannot be used.
        """
        with self._mutex:
            try:
                self._connection = connect(self.parameters)
                self._connection.execute(_FORGET)
                # Other nodes must see the row together with its lock, because a node without a lock counts as dead.
                with self._connection.transaction():
                    inserted = self._connection.execute(_INSERT, [self._description.name])
                    self.number = inserted.fetchall()[0]["number"]
                    self._hold(self._connection)
                self._confirmed_at = time.monotonic()
                self._look(self._connection)
            except psycopg.Error as error:
                self._close()
                raise unavailable(error) from error
            except StoreUnavailable:
                self._close()
                raise
        threading.Thread(target=self._beat, name="node-heartbeat", daemon=True).start()

    @property
    def is_confirmed(self) -> bool:
        """Whether the last heartbeat is so recent that no other node can have ended this process."""
        return time.monotonic() - self._confirmed_at < CONFIRMED_S

    def connect_worker(self) -> Connection:
        """Return a connection to work on. Other nodes end it before the work fails over.

        Raises:
            StoreLocked: other nodes have ended this one.
            StoreUnavailable: the server cannot be used.
        """
        self._ensure()
        connection = connect(self.parameters)
        try:
            # The order matters: a node that ends this one after the second line finds the lock of the first line.
            connection.execute(
                "SELECT pg_advisory_lock_shared(%s::int, %s::int)", [WORK, self.number]
            )
            self._ensure()
        except psycopg.Error as error:
            connection.close()
            raise unavailable(error) from error
        except StoreUnavailable:
            connection.close()
            raise
        return connection

    def try_name(self, name: str, on_lost: Callable[[], None]) -> bool:
        """Take a name that only one node can have at a time; False if another node has it. Raises StoreUnavailable.

        `on_lost` is called on a worker thread if the name is lost before `give_name`.
        """
        with self._mutex:
            if self._connection is None or self._leaves or self._released.is_set():
                return False
            try:
                is_mine = self._connection.execute(_LOCK_NAME, [name]).fetchall()[0]["is_mine"]
            except psycopg.Error as error:
                self._close()
                raise unavailable(error) from error
            if is_mine:
                self._names[name] = on_lost
            return bool(is_mine)

    def give_name(self, name: str) -> None:
        """Release a name for other nodes."""
        with self._mutex:
            if self._names.pop(name, None) is not None and self._connection is not None:
                with suppress(psycopg.Error):
                    self._connection.execute(_UNLOCK_NAME, [name])

    def mark_ready(self) -> None:
        """Mark this node as ready for work. Raises StoreUnavailable."""
        self._announce(_MARK_READY)

    def leave(self) -> None:
        """Stop taking work and names, and lose the names it has. Raises StoreUnavailable."""
        with self._mutex:
            self._leaves = True
            # Other nodes get a name only once its block has ended (`give_name`).
            for on_lost in self._names.values():
                on_lost()
        self._announce(_LEAVE)

    def release(self) -> None:
        """Stop being a node. The caller has closed the working connections, so this process can no longer write."""
        self._released.set()
        with self._mutex:
            if self._connection is not None and self.number:
                # If a session is only closed, it keeps its locks until the server notices.
                with suppress(psycopg.Error):
                    self._connection.execute(_END, [self.number])
                    self._connection.execute("SELECT pg_advisory_unlock_all()")
            self._close()

    def explain_failure(self) -> None:
        """Call `on_lost` if other nodes have ended this one: its connections fail before its next heartbeat."""
        try:
            self._ensure()
        except StoreLocked:
            self._tell_lost()
        except StoreUnavailable as error:
            log.debug("could not check whether this node was ended: %s", error)

    def _announce(self, statement: LiteralString) -> None:
        """Change the row of this node and reread the list of nodes. Raises StoreUnavailable."""
        with self._mutex:
            if self._connection is None:
                raise StoreUnavailable("The database could not be used.")
            try:
                self._connection.execute(statement, [self.number])
                self._look(self._connection)
            except psycopg.Error as error:
                self._close()
                raise unavailable(error) from error

    def _beat(self) -> None:
        """Show that this process is alive, and end nodes that are not."""
        looked_at = time.monotonic()
        while not self._released.wait(PROBE_S):
            try:
                is_due = time.monotonic() - looked_at >= self._heartbeat_s
                if is_due or self._has_neighbor_ended():
                    looked_at = time.monotonic()
                    self._ensure(looks=True)
            except StoreLocked:
                self._tell_lost()
                return
            except StoreUnavailable as error:
                log.debug("no heartbeat: %s", error)
            except Exception:
                log.exception("the heartbeat failed; the next one follows")

    def _tell_lost(self) -> None:
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            on_lost()

    def _ensure(self, *, looks: bool = False) -> None:
        """Return if this process is a node. `looks`: check others too. Raises StoreLocked, StoreUnavailable."""
        with self._mutex:
            if self._released.is_set():
                raise StoreUnavailable("The database is closed.")
            started_at = time.monotonic()
            try:
                if not self._is_connected():
                    self._reconnect()
                elif looks and self._connection is not None:
                    if not self.is_confirmed:
                        # This node was cut off or frozen, so the other nodes may have been, too.
                        self._returned_at = time.monotonic()
                    self._look(self._connection)
            except psycopg.Error as error:
                self._close()
                raise unavailable(error) from error
            self._confirmed_at = started_at

    def _has_neighbor_ended(self) -> bool:
        """Return whether the next node, in a ring by number, has released its lock.

        So some node notices each end soon, and the far more expensive list of all nodes is rarely read.
        """
        with self._mutex:
            numbers = sorted(node.number for node in self.living if node.number != self.number)
            if not numbers or self._connection is None:
                return False
            neighbor = next((one for one in numbers if one > self.number), numbers[0])
            try:
                return is_free(self._connection, NODE, neighbor)
            except psycopg.Error:
                return False  # The next heartbeat repairs the connection.

    def _is_connected(self) -> bool:
        """Return whether the connection of this node works; drop a broken one."""
        try:
            if self._connection is not None:
                self._connection.execute("SELECT 1")
        except psycopg.Error:
            self._close()
        return self._connection is not None

    def _reconnect(self) -> None:
        """Become the same node again after its connection broke. Raises StoreLocked if other nodes have ended it."""
        connection = connect(self.parameters)
        try:
            if connection.execute(_HAS_ENDED, [self.number]).fetchall()[0]["has_ended"]:
                raise StoreLocked("The work of this node failed over to other nodes.")
            self._hold(connection)
        except (psycopg.Error, StoreUnavailable):
            connection.close()
            raise
        self._connection = connection
        self._returned_at = time.monotonic()

    def _hold(self, connection: Connection) -> None:
        """Take the locks of this node. Raises StoreLocked, or StoreUnavailable if another session has them."""
        name = self._description.application_name(self.number)
        connection.execute("SELECT set_config('application_name', %s, false)", [name])
        refuse_sole_use(connection)
        give_up_at = time.monotonic() + HOLD_S
        while not try_lock(connection, NODE, self.number):
            if time.monotonic() > give_up_at:
                raise StoreUnavailable(
                    "The database still holds the broken connection of this node."
                )
            for state in list_nodes(connection):
                # This is an earlier session of this node that the server still considers open, not the session of a
                # node that is ending this one.
                if state.node.number == self.number and state.application_name == name:
                    terminate(connection, [state.pid])
            self._released.wait(0.01)

    def _look(self, connection: Connection) -> None:
        """Update the list of living nodes, and end all others."""
        states = list_nodes(connection)
        ended: list[NodeState] = []
        for state in states:
            if state.node.number != self.number:
                self._tell(state)
        if time.monotonic() - self._returned_at > RETURN_S:
            ended = [state for state in states if self._end_if_gone(connection, state)]
            states = [state for state in states if state not in ended]
        living = tuple(state.node for state in states if state.pid)
        # It was not among the living nodes before: it died while the database was away.
        if ended or living != self.living:
            self.living = living
            if self.on_change is not None:
                self.on_change()

    def _end_if_gone(self, connection: Connection, state: NodeState) -> bool:
        """End a node that is dead, or silent for too long; return whether it is ended. Raises StoreUnavailable."""
        node = state.node
        if node.number == self.number or not state.may_be_ended:
            return False
        if state.pid:
            if state.silent_s <= FROZEN_S:
                return False
            log.warning("Node %s (%s) does not respond; it is ended.", node.number, node.name)
            terminate(connection, [state.pid])
        if not try_lock(connection, NODE, node.number):
            return False
        try:
            end_work(connection, node.number)
            connection.execute(_END, [node.number])
        finally:
            connection.execute("SELECT pg_advisory_unlock(%s::int, %s::int)", [NODE, node.number])
        log.warning(
            "Node %s (%s) is gone; its work fails over to other nodes.", node.number, node.name
        )
        return True

    def _tell(self, state: NodeState) -> None:
        """Log once how another node's version or configuration differs."""
        number = state.node.number
        if state.application_name and self._known.get(number) != state.application_name:
            self._known[number] = state.application_name
            if differences := self._description.differences(state.application_name):
                log.warning("Node %s (%s): %s", number, state.node.name, differences)

    def _close(self) -> None:
        names, self._names = self._names, {}
        for on_lost in names.values():
            on_lost()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
