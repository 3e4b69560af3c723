"""The database: grouped writes on one thread, reads through aiosqlite."""

import logging
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path

import aiosqlite
import anyio
import anyio.to_thread

from store.config import StoreConfig
from store.errors import StoreUnavailable
from store.sqlite_file import connect, lock_folder, reader_pragmas
from store.writer import DatabaseWriter, Params, Row, T, Transaction, Value

__all__ = ["Database", "Params", "Row", "Transaction", "Value"]

_PROBE = """
INSERT INTO received_id (channel, workspace, kind, chat, external_id, received_at)
VALUES ('', '', 'event', '', 'probe', :now)
ON CONFLICT DO UPDATE SET received_at = excluded.received_at
"""

CLOSE_S = 5.0
"""Bound of a clean close, seconds: the last commit is made within milliseconds, or the disk hangs."""

_log = logging.getLogger(__name__)


class Database:
    """An open database.

    Attributes:
        retention_days: `database.retention_days` of the configuration.

    Writes run on one thread, the units of many callers in one commit (group commit), each in a savepoint:
    a unit that raises undoes only itself. `transaction` returns after the commit is
    on disk (WAL, synchronous=FULL).
    """

    def __init__(
        self,
        writer: DatabaseWriter,
        readers: list[aiosqlite.Connection],
        *,
        file: Path,
        retention_days: int,
    ) -> None:
        self.retention_days = retention_days
        self._file = file
        self._read_outage = ""
        self._writer = writer
        self._readers = readers
        self._free = anyio.Semaphore(len(readers))

    @classmethod
    @asynccontextmanager
    async def open(cls, config: StoreConfig, home: Path) -> AsyncIterator["Database"]:
        """Open (create, migrate) the database of the data folder `home`.

        Raises:
            StoreLocked: another process has it.
            DatabaseCorrupt: the file is damaged; a copy named in the message was kept and nothing was changed.
            SchemaTooNew: a newer Parley wrote it.
            StoreUnavailable: the folder cannot be made or written.
        """
        if not config.url.startswith("sqlite:///"):
            raise StoreUnavailable(
                "database.url must be sqlite:///FILE; other engines are not supported yet."
            )
        file = config.file(home)
        async with AsyncExitStack() as stack:
            held = stack.enter_context(ExitStack())
            await anyio.to_thread.run_sync(held.enter_context, lock_folder(home))
            connection = await anyio.to_thread.run_sync(
                lambda: connect(file, busy_timeout_ms=config.busy_timeout_ms)
            )
            writer = DatabaseWriter(connection, file)
            stack.push_async_callback(_close_writer, writer)
            readers = [
                await stack.enter_async_context(_reader(file, config.busy_timeout_ms))
                for _ in range(config.readers)
            ]
            yield cls(writer, readers, file=file, retention_days=config.retention_days)

    @property
    def outage(self) -> str:
        """Why the database cannot be used now, for administrators; "" while it can.

        The error of the last write that changed something, or of the last read. Costs nothing.
        """
        return self._writer.outage or self._read_outage

    async def check_writable(self) -> None:
        """Return if a message could be stored now. Writes (one page) only after a write failed.

        Raises:
            StoreUnavailable: the file cannot be written, was deleted, or was replaced.
        """
        probe = _PROBE if self._writer.outage else "SELECT 1"
        params: Params = {"now": time.time()}
        await self.transaction(lambda tx: tx.run(probe, params))

    def free_bytes(self) -> int:
        """Return the free space of the disk that holds the file; 0 if the folder is gone."""
        try:
            return shutil.disk_usage(self._file.parent).free
        except OSError:
            return 0

    async def transaction(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on the writer thread and return its result once it is committed.

        `work` must not block and must not keep the transaction. If the caller is cancelled while it waits,
        the unit may nevertheless be committed.

        Raises:
            StoreUnavailable: the file cannot be written (disk full), or the database was closed.
        """
        return await self._writer.submit(work)

    async def read(self, sql: str, params: Params | None = None) -> list[Row]:
        """Return the rows of one SELECT, as committed now.

        Raises:
            StoreUnavailable: the file cannot be read, or the database was closed.
        """
        async with self._free:
            connection = self._readers.pop()
            try:
                rows = await connection.execute_fetchall(sql, params or {})
            except sqlite3.Error as error:
                self._read_outage = f"The database could not be read ({error})."
                raise StoreUnavailable(self._read_outage) from error
            except ValueError as error:
                raise StoreUnavailable("The database is closed.") from error
            finally:
                self._readers.append(connection)
        self._read_outage = ""
        return [dict(row) for row in rows]


@asynccontextmanager
async def _reader(file: Path, busy_timeout_ms: int) -> AsyncIterator[aiosqlite.Connection]:
    connection = await aiosqlite.connect(file, isolation_level=None)
    try:
        connection.row_factory = sqlite3.Row
        for pragma in reader_pragmas(busy_timeout_ms):
            await connection.execute_fetchall(pragma)
        yield connection
    finally:
        with anyio.move_on_after(CLOSE_S, shield=True):
            await connection.close()


async def _close_writer(writer: DatabaseWriter) -> None:
    with anyio.CancelScope(shield=True):
        if not await writer.close(timeout_s=CLOSE_S):
            _log.error("The database writer did not stop within %s s; the disk hangs.", CLOSE_S)
