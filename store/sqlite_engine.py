"""SQLite: grouped writes on one worker thread, reads through aiosqlite."""

import logging
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiosqlite
import anyio
import anyio.to_thread
from typing_extensions import override

from store.config import StoreConfig
from store.engine import Engine
from store.errors import StoreUnavailable, ValueRefused
from store.nodes import Nodes, SingleNode
from store.signals import LocalSignals
from store.sqlite_file import connect, reader_pragmas
from store.sqlite_writer import DatabaseWriter
from store.transaction import Params, Row, T, Transaction

CLOSE_S = 5.0
"""Limit of a clean close, seconds. The last commit takes milliseconds unless the disk hangs."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Reader:
    """A read connection and the number of callers that wait for it."""

    connection: aiosqlite.Connection
    pending: int = 0


class SqliteEngine(Engine):
    """A SQLite file.

    Writes run on one worker thread, which commits the units of many callers together (group commit). A unit that raises
    undoes only itself. `submit` returns after the commit is on disk (WAL, synchronous=FULL).
    """

    has_checkpoints = False

    def __init__(
        self,
        writer: DatabaseWriter,
        readers: Sequence[aiosqlite.Connection],
        *,
        file: Path,
        name: str = "",
    ) -> None:
        self._file = file
        self.signals = LocalSignals()
        self._read_outage = ""
        self._writer = writer
        self._readers = [_Reader(connection) for connection in readers]
        self._nodes = SingleNode(name)

    @property
    @override
    def nodes(self) -> Nodes:
        return self._nodes

    @property
    @override
    def is_owner(self) -> bool:
        return True  # The data folder's lock ensures this. A frozen process keeps the lock.

    @property
    @override
    def outage(self) -> str:
        """The error of the last write that changed something, or of the last read."""
        return self._writer.outage or self._read_outage

    @override
    async def submit(self, work: Callable[[Transaction], T], *, order: str = "") -> T:
        return await self._writer.submit(work)

    @override
    async def execute(self, sql: str, params: Params, *, order: str = "") -> Sequence[Row]:
        return await self._writer.submit(lambda tx: tx.run(sql, params))

    @override
    async def read(self, sql: str, params: Params) -> list[Row]:
        # Each connection has a queue and a thread. A task does not hold a connection until it runs again: while the
        # event loop is busy, the task would run late and keep all others waiting.
        reader = min(self._readers, key=lambda one: one.pending)
        reader.pending += 1
        try:
            rows = await reader.connection.execute_fetchall(sql, params)
        except (UnicodeEncodeError, OverflowError) as error:
            raise ValueRefused from error
        except sqlite3.Error as error:
            self._read_outage = f"The database could not be read ({error})."
            raise StoreUnavailable(self._read_outage) from error
        except ValueError as error:
            raise StoreUnavailable("The database is closed.") from error
        finally:
            reader.pending -= 1
        self._read_outage = ""
        return [dict(row) for row in rows]

    @override
    def free_bytes(self) -> int:
        try:
            return shutil.disk_usage(self._file.parent).free
        except OSError:
            return 0


@asynccontextmanager
async def open_sqlite(
    config: StoreConfig, home: Path, name: str = ""
) -> AsyncIterator[SqliteEngine]:
    """Open (create, migrate) the SQLite file of the data folder `home`. `name`: of this node.

    Raises:
        DatabaseCorrupt: the file is damaged; a copy named in the message was kept and nothing was changed.
        SchemaMismatch: a newer or an earlier Parley wrote it.
        StoreUnavailable: it cannot be opened.
    """
    file = config.file(home)
    async with AsyncExitStack() as stack:
        connection = await anyio.to_thread.run_sync(
            lambda: connect(file, busy_timeout_ms=config.busy_timeout_ms)
        )
        writer = DatabaseWriter(connection, file)
        stack.push_async_callback(_close_writer, writer)
        readers = [
            await stack.enter_async_context(_reader(file, config.busy_timeout_ms))
            for _ in range(config.readers)
        ]
        engine = SqliteEngine(writer, readers, file=file, name=name)
        stack.callback(engine.signals.close)
        yield engine


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
            log.error("The database writer did not stop within %s s; the disk hangs.", CLOSE_S)
