"""A process as a node of a PostgreSQL database: how it shows that it lives, and ends nodes that do not.

A node inserts its row, and holds the advisory lock (`NODE`, its number) on a connection of its own; every connection on
which it works holds (`WORK`, its number) shared. PostgreSQL releases both when a process ends, also after kill -9. A
node that finds another one without the first lock takes it, ends every session that holds the second, and then marks
the row as ended. So a process that was frozen has no connection left when it wakes up, gets no new one, and has written
nothing since others took over its work. Only the clock of the database counts.
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
"""How often a node shows that it lives, and looks at all others, seconds."""

PROBE_S = 0.08
"""How often a node looks whether its neighbor has ended, seconds: every takeover begins with that."""

FROZEN_S = 4.0
"""A node whose connection was silent for so long, seconds, is frozen or cut off: its sessions are ended."""

CONFIRMED_S = FROZEN_S / 2
"""How long a sign of life of our own is proof enough that no other node has ended this one, seconds."""

HOLD_S = 1.0
"""How long the server may take to end the earlier session of this node, seconds."""

RETURN_S = FROZEN_S
"""After an outage of the database, seconds that other nodes get to come back before they are ended."""

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

_log = logging.getLogger(__name__)


class MemberNode:
    """This process as a node. Calls block, and may come from any thread.

    Args:
        parameters: Of connections.
        description: What other nodes are told about this one.
        on_lost: Called, once, on another thread when other nodes have ended this one.
        heartbeat_s: How often it looks at all other nodes, seconds.

    Attributes:
        number: Of this node; 0 before `join`.
        living: The nodes that live, as of the last heartbeat.
        on_change: Called on another thread when that list changes, or this node has ended another one.
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
        """Become a node, end those that are gone, and stay it until `release`.

        Raises:
            StoreLocked: a tool uses the database alone.
            StoreUnavailable: the server cannot be used.
        """
        with self._mutex:
            try:
                self._connection = connect(self.parameters)
                self._connection.execute(_FORGET)
                # Others see the row together with its lock: a node without one is gone.
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
        """Whether this process showed so lately that it lives that no other node can have ended it."""
        return time.monotonic() - self._confirmed_at < CONFIRMED_S

    def connect_worker(self) -> Connection:
        """Return a connection to work on; it is ended before others take the work over.

        Raises:
            StoreLocked: other nodes have ended this one.
            StoreUnavailable: the server cannot be used.
        """
        self._ensure()
        connection = connect(self.parameters)
        try:
            # In this order: whoever ends this node after the second line finds the lock of the first one.
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
        """Take a name that one node at a time has; False if another one has it. Raises StoreUnavailable.

        `on_lost` is called on another thread if the name is lost before `give_name`.
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
        """Let other nodes have a name."""
        with self._mutex:
            if self._names.pop(name, None) is not None and self._connection is not None:
                with suppress(psycopg.Error):
                    self._connection.execute(_UNLOCK_NAME, [name])

    def mark_ready(self) -> None:
        """Take work. Raises StoreUnavailable."""
        self._announce(_MARK_READY)

    def leave(self) -> None:
        """Take no more work, and no more names; those that it has are lost. Raises StoreUnavailable."""
        with self._mutex:
            self._leaves = True
            # Others get a name when its block has ended: `give_name`.
            for on_lost in self._names.values():
                on_lost()
        self._announce(_LEAVE)

    def release(self) -> None:
        """Stop being a node. Its working connections are closed before: nothing of it can write any more."""
        self._released.set()
        with self._mutex:
            if self._connection is not None and self.number:
                # A session that is only closed keeps its locks until the server notices.
                with suppress(psycopg.Error):
                    self._connection.execute(_END, [self.number])
                    self._connection.execute("SELECT pg_advisory_unlock_all()")
            self._close()

    def explain_failure(self) -> None:
        """Call `on_lost` if other nodes have ended this one: then its connections fail before its next heartbeat."""
        try:
            self._ensure()
        except StoreLocked:
            self._tell_lost()
        except StoreUnavailable as error:
            _log.debug("no answer whether this node was ended: %s", error)

    def _announce(self, statement: LiteralString) -> None:
        """Change the row of this node, and see it changed. Raises StoreUnavailable."""
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
        """Show that this process lives, and end nodes that do not."""
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
                _log.debug("no heartbeat: %s", error)
            except Exception:  # noqa: BLE001 - without a heartbeat other nodes would end this one
                _log.exception("the heartbeat failed; it goes on")

    def _tell_lost(self) -> None:
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            on_lost()

    def _ensure(self, *, looks: bool = False) -> None:
        """Return if this process is a node. `looks`: see to the others too. Raises StoreLocked, StoreUnavailable."""
        with self._mutex:
            if self._released.is_set():
                raise StoreUnavailable("The database is closed.")
            started_at = time.monotonic()
            try:
                if not self._is_connected():
                    self._reconnect()
                elif looks and self._connection is not None:
                    if not self.is_confirmed:
                        # This node was cut off, or frozen: so may the others have been.
                        self._returned_at = time.monotonic()
                    self._look(self._connection)
            except psycopg.Error as error:
                self._close()
                raise unavailable(error) from error
            self._confirmed_at = started_at

    def _has_neighbor_ended(self) -> bool:
        """Return whether the next node, in a ring by number, has let go of its lock.

        So somebody notices each end soon, and the list of all nodes, which costs far more, is still read seldom.
        """
        with self._mutex:
            numbers = sorted(node.number for node in self.living if node.number != self.number)
            if not numbers or self._connection is None:
                return False
            neighbor = next((one for one in numbers if one > self.number), numbers[0])
            try:
                return is_free(self._connection, NODE, neighbor)
            except psycopg.Error:
                return False  # the next heartbeat sees to the connection

    def _is_connected(self) -> bool:
        """Return whether the connection of this node works; forget one that does not."""
        try:
            if self._connection is not None:
                self._connection.execute("SELECT 1")
        except psycopg.Error:
            self._close()
        return self._connection is not None

    def _reconnect(self) -> None:
        """Become the same node again after its connection broke. Raises StoreLocked: others have ended it."""
        connection = connect(self.parameters)
        try:
            if connection.execute(_HAS_ENDED, [self.number]).fetchall()[0]["has_ended"]:
                raise StoreLocked("Other nodes took over the work of this one.")
            self._hold(connection)
        except (psycopg.Error, StoreUnavailable):
            connection.close()
            raise
        self._connection = connection
        self._returned_at = time.monotonic()

    def _hold(self, connection: Connection) -> None:
        """Take the locks of this node. Raises StoreLocked, StoreUnavailable: another session has them."""
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
                # The session of before, which the server has not noticed to be gone; not that of a node that ends us.
                if state.node.number == self.number and state.application_name == name:
                    terminate(connection, [state.pid])
            self._released.wait(0.01)

    def _look(self, connection: Connection) -> None:
        """Note which nodes live; end those that do not."""
        states = list_nodes(connection)
        ended: list[NodeState] = []
        for state in states:
            if state.node.number != self.number:
                self._tell(state)
        if time.monotonic() - self._returned_at > RETURN_S:
            ended = [state for state in states if self._end_if_gone(connection, state)]
            states = [state for state in states if state not in ended]
        living = tuple(state.node for state in states if state.pid)
        # One that was not among the living any more: it died while the database was away.
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
            _log.warning("Node %s (%s) does not respond; it is ended.", node.number, node.name)
            terminate(connection, [state.pid])
        if not try_lock(connection, NODE, node.number):
            return False
        try:
            end_work(connection, node.number)
            connection.execute(_END, [node.number])
        finally:
            connection.execute("SELECT pg_advisory_unlock(%s::int, %s::int)", [NODE, node.number])
        _log.warning("Node %s (%s) is gone; its work is taken over.", node.number, node.name)
        return True

    def _tell(self, state: NodeState) -> None:
        """Log once what differs in another node."""
        number = state.node.number
        if state.application_name and self._known.get(number) != state.application_name:
            self._known[number] = state.application_name
            if differences := self._description.differences(state.application_name):
                _log.warning("Node %s (%s): %s", number, state.node.name, differences)

    def _close(self) -> None:
        names, self._names = self._names, {}
        for on_lost in names.values():
            on_lost()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
