"""The writer's worker thread: commits the units of work of many callers together."""

import asyncio
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import anyio.to_thread
from typing_extensions import override

from store.errors import StoreError, StoreUnavailable, ValueRefused
from store.transaction import Params, Row, Statement, T, Transaction
from store.unit_of_work import UnitOfWork, UnitTurns, report_results, result_of, take_batch
from store.work_group import WORK_GROUP, is_command_work

RUN_S = 0.01
"""How long units run before a commit, seconds. A command's unit is committed as soon as it has run.

The limit is a time, not a number of units. While the event loop is busy, each unit waits for the interpreter's lock,
and 8 units take 10 to 20 ms. Otherwise, hundreds run in that time and share one flush of a slow disk.
"""

COMMAND_SWITCH_S = 0.0001
"""How long the thread waits for the interpreter's lock at each SQLite call while a command's unit is queued or running.

At other times, the process's own interval applies. If it were always this short, a turn would take 25% to 50% more CPU.
"""

MAX_BATCH = 512
"""Units per commit. With 100 callers a commit has about 100 units; a larger limit only delays the first."""

MAX_TAKEN = 512
"""Units taken from the callers' queue at a time."""


class _SqliteTransaction(Transaction):
    """The writer's connection, for units of work."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @override
    def run(self, sql: str, params: Params | None = None) -> Sequence[Row]:
        try:
            cursor = self._connection.execute(sql, params or {})
        except (UnicodeEncodeError, OverflowError) as error:
            raise ValueRefused from error
        if cursor.description is None:
            return ()
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]

    @override
    def run_all(self, statements: Sequence[Statement]) -> list[Sequence[Row]]:
        return [self.run(sql, params) for sql, params in statements]

    @override
    def lock(self, name: str) -> None:
        """Do nothing: this is the only writer."""


class DatabaseWriter:
    """The writing connection and its thread.

    Queued units go into one transaction, including those queued while others run, up to `RUN_S`. Work groups take
    turns, and commands go first. A unit that raises undoes only itself; the others may run twice. After the commit,
    one call into the event loop wakes all callers of the batch.

    Args:
        connection: The connection.
        file: The path of its open file. A commit counts only while the open file is at this path: rows in a deleted
            file are lost.

    Attributes:
        outage: Why the last transaction that changed something failed; "" = it was committed.
    """

    def __init__(self, connection: sqlite3.Connection, file: Path) -> None:
        self.outage = ""
        self._file = file
        self._identity = _identity(file)
        self._connection = connection
        self._transaction = _SqliteTransaction(connection)
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[UnitOfWork | None] = SimpleQueue()
        self._closed = False
        self._is_last = False
        self._switch_s = sys.getswitchinterval()
        self._thread = Thread(target=self._serve, name="database-writer", daemon=True)
        self._thread.start()

    async def submit(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on the thread; return its result once it is on disk.

        The unit of a canceled caller may still be committed.

        Raises:
            StoreUnavailable: the file cannot be written, or the writer was closed.
        """
        return await result_of(self._put(work))

    async def close(self, *, timeout_s: float) -> bool:
        """Commit the queued units, then end the thread. False if it did not end within `timeout_s`."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        await anyio.to_thread.run_sync(self._thread.join, timeout_s)
        return not self._thread.is_alive()

    def _put(self, work: Callable[[Transaction], T]) -> asyncio.Future[T]:
        if self._closed:
            raise StoreUnavailable("The database is closed.")
        future: asyncio.Future[T] = self._loop.create_future()
        group = WORK_GROUP.get()
        # Set before queueing: the thread may run the unit and reset this before the event loop continues.
        if is_command_work(group):
            sys.setswitchinterval(min(COMMAND_SWITCH_S, self._switch_s))
        self._queue.put(UnitOfWork(work, future, group=group))
        return future

    def _serve(self) -> None:
        turns = UnitTurns()
        while turns or not self._is_last:
            if not self._is_last:
                self._take_queued(turns)
            if turns:
                units = self._commit(turns)
                if not turns.have_command and any(is_command_work(unit.group) for unit in units):
                    sys.setswitchinterval(self._switch_s)
                report_results(self._loop, units)
        self._connection.close()

    def _take_queued(self, turns: UnitTurns) -> None:
        """Add queued units to `turns`; wait if there is nothing to do. Record whether the last unit was taken."""
        if turns and self._queue.empty():
            return
        for unit in take_batch(self._queue, MAX_TAKEN):
            if unit is None:
                self._is_last = True
            else:
                turns.add(unit)

    def _commit(self, turns: UnitTurns) -> Sequence[UnitOfWork]:
        """Run and commit the next units; return them with their results."""
        changes = self._connection.total_changes
        units = [turns.take()]
        try:
            self._check_file()
            self._run_together(units, turns)
            self._connection.execute("COMMIT")
            self._check_file()
        except (sqlite3.Error, StoreUnavailable) as error:
            with suppress(sqlite3.Error):
                self._connection.rollback()
            for unit in units:
                unit.error = unit.error or _unavailable(error)
        outages = [str(one.error) for one in units if isinstance(one.error, StoreUnavailable)]
        if outages or self._connection.total_changes > changes:
            self.outage = next(iter(outages), "")
        return units

    def _check_file(self) -> None:
        """Raise StoreUnavailable if the file was deleted or replaced. Takes two microseconds."""
        if _identity(self._file) != self._identity:
            raise StoreUnavailable(
                f"The database file {self._file} was deleted or replaced while Parley runs. "
                "Stop Parley, restore the file from a backup, and start again."
            )

    def _run_together(self, units: list[UnitOfWork], turns: UnitTurns) -> None:
        """Begin a transaction and run `units`, then units of `turns`, which are added to `units`.

        If one raises, all run again, each in a savepoint. Savepoints are not the default because each takes two calls
        of SQLite, and each call waits for the interpreter's lock while the event loop is busy.

        Raises:
            sqlite3.Error: The whole transaction is lost.
        """
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._run_plainly(units, turns)
        except Exception:  # noqa: BLE001 - a unit of work: the second run hands its error to the caller
            self._connection.rollback()
            self._connection.execute("BEGIN IMMEDIATE")
            for unit in units:
                self._run(unit)

    def _run_plainly(self, units: list[UnitOfWork], turns: UnitTurns) -> None:
        until, has_command = time.monotonic() + RUN_S, False
        for unit in units:  # This list may grow during the loop.
            unit.value = unit.work(self._transaction)
            if not self._connection.in_transaction:
                raise sqlite3.OperationalError("A unit lost the transaction.")
            if not (self._is_last or self._queue.empty()):
                self._take_queued(turns)
            has_command = has_command or is_command_work(unit.group)
            if not turns or (has_command and not turns.have_command):
                return
            is_time = time.monotonic() < until or (turns.have_command and not has_command)
            if is_time and len(units) < MAX_BATCH:
                units.append(turns.take())

    def _run(self, unit: UnitOfWork) -> None:
        """Run one unit in its savepoint. Raises sqlite3.Error if the whole transaction is lost."""
        self._connection.execute("SAVEPOINT unit")
        try:
            unit.value = unit.work(self._transaction)
        except Exception as error:  # The caller gets the error.
            unit.error = _unavailable(error) if _is_outage(error) else error
            if not self._connection.in_transaction:
                raise sqlite3.OperationalError(str(error)) from error
            self._connection.execute("ROLLBACK TO unit")
        self._connection.execute("RELEASE unit")


def _is_outage(error: Exception) -> bool:
    """Return whether a statement failed because of the file, not because of its text."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, sqlite3.IntegrityError | sqlite3.ProgrammingError
    )


def _identity(file: Path) -> tuple[int, int]:
    """Return numbers that distinguish a file from others with the same name; zeros if it is not accessible."""
    try:
        found = file.stat()
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def _unavailable(error: Exception) -> StoreError:
    if isinstance(error, StoreError):
        return error
    problem = StoreUnavailable(
        f"The database could not be written ({error}). Nothing was lost. Is the disk full?"
    )
    problem.__cause__ = error
    return problem
