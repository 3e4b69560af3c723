"""PostgreSQL: runs units of work concurrently, on several connections with a worker thread each."""

import asyncio
import logging
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import anyio
import anyio.to_thread
from typing_extensions import override

from store.config import StoreConfig
from store.engine import Engine
from store.errors import StoreUnavailable
from store.nodes import Nodes
from store.postgres.connection import Connection, parse_url
from store.postgres.membership import MemberNode
from store.postgres.nodes import PostgresNodes
from store.postgres.schema import migrate
from store.postgres.session import PostgresSession
from store.postgres.signals import PostgresSignals
from store.postgres.statement_batches import StatementBatches, StatementUnit
from store.process_description import ProcessDescription
from store.transaction import Params, Row, T, Transaction
from store.unit_of_work import UnitOfWork, report_results, result_of

CONNECTIONS = 7
"""Number of connections for units and reads. The node, the signals and single statements each use one more."""

RECONNECT_S = 0.5
"""After a failed connection attempt, how long calls fail at once instead of trying again, seconds."""

CLOSE_S = 5.0

log = logging.getLogger(__name__)


class PostgresEngine(Engine):
    """A PostgreSQL database.

    Units run concurrently, each in its own transaction (READ COMMITTED). A unit that depends on rows it read must lock
    them, or a name. A unit that conflicts with another one may run again. Single statements have a separate connection,
    where statements of many callers run in one transaction (store/postgres/statement_batches.py).

    Args:
        node: The node that this process is.
        folder: Where files are stored, for `free_bytes`.
    """

    has_checkpoints = True

    def __init__(self, node: MemberNode, folder: Path) -> None:
        self._node = node
        self._nodes = PostgresNodes(node)
        self._folder = folder
        self.signals = PostgresSignals(node.connect_worker)
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[UnitOfWork | None] = SimpleQueue()
        self._statements = StatementBatches(self._connect, self._report, self._queue.put)
        self._orders: dict[str, tuple[anyio.Lock, int]] = {}
        self._outage = ""
        self._retry_at = 0.0
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"database-{number}", daemon=True)
            for number in range(CONNECTIONS)
        ]
        for thread in self._threads:
            thread.start()

    @property
    @override
    def nodes(self) -> Nodes:
        return self._nodes

    @property
    @override
    def outage(self) -> str:
        return self._outage

    @property
    @override
    def is_owner(self) -> bool:
        return self._node.is_confirmed

    @override
    async def submit(self, work: Callable[[Transaction], T], *, order: str = "") -> T:
        if not order:
            return await result_of(self._put(work))
        async with self._turn(order):
            return await result_of(self._put(work))

    @override
    async def execute(self, sql: str, params: Params, *, order: str = "") -> Sequence[Row]:
        async with self._turn(order) if order else nullcontext():
            return await result_of(self._put_statement(sql, params))

    @asynccontextmanager
    async def _turn(self, order: str) -> AsyncIterator[None]:
        """Wait for the earlier units of an order; later ones wait for the end of the block."""
        lock, callers = self._orders.get(order) or (anyio.Lock(fast_acquire=True), 0)
        self._orders[order] = lock, callers + 1
        try:
            async with lock:
                yield
        finally:
            lock, callers = self._orders.pop(order)
            if callers > 1:
                self._orders[order] = lock, callers - 1

    @override
    async def read(self, sql: str, params: Params) -> list[Row]:
        return list(await result_of(self._put(lambda tx: tx.run(sql, params), is_read=True)))

    @override
    def free_bytes(self) -> int:
        try:
            return shutil.disk_usage(self._folder).free
        except OSError:
            return 0

    async def close(self) -> None:
        """Run the submitted units, then close the connections."""
        self._closed = True
        await anyio.to_thread.run_sync(self.signals.close)
        # Statements that cannot run together go to the other worker threads.
        await anyio.to_thread.run_sync(self._statements.close, CLOSE_S)
        for _ in self._threads:
            self._queue.put(None)
        deadline = time.monotonic() + CLOSE_S
        for thread in self._threads:
            await anyio.to_thread.run_sync(thread.join, max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            log.error("The database connections did not close within %s s.", CLOSE_S)

    def _put(self, work: Callable[[Transaction], T], *, is_read: bool = False) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._new_future()
        self._queue.put(UnitOfWork(work, future, is_read=is_read))
        return future

    def _put_statement(self, sql: str, params: Params) -> asyncio.Future[Sequence[Row]]:
        future: asyncio.Future[Sequence[Row]] = self._new_future()
        self._statements.put(StatementUnit((sql, params), future))
        return future

    def _new_future(self) -> asyncio.Future[Any]:
        if self._closed:
            raise StoreUnavailable("The database is closed.")
        return self._loop.create_future()

    def _serve(self) -> None:
        """Run units on a connection of this thread until the engine is closed."""
        session = PostgresSession(self._connect)
        while (unit := self._queue.get()) is not None:
            try:
                unit.value = session.run(unit.work, is_read=unit.is_read)
            except Exception as error:  # noqa: BLE001 - a unit of work: its error goes to its caller
                unit.error = error
            self._report([unit])
        session.close()

    def _report(self, units: Sequence[UnitOfWork]) -> None:
        """Hand results to their callers; note whether the database works."""
        outages = [str(one.error) for one in units if isinstance(one.error, StoreUnavailable)]
        if outages or any(one.error is None for one in units):
            self._outage = next(iter(outages), "")
        report_results(self._loop, units)

    def _connect(self) -> Connection:
        if time.monotonic() < self._retry_at:
            raise StoreUnavailable(self._outage)
        try:
            return self._node.connect_worker()
        except StoreUnavailable as error:
            self._outage = str(error)
            self._retry_at = time.monotonic() + RECONNECT_S
            raise


@asynccontextmanager
async def open_postgres(
    config: StoreConfig,
    home: Path,
    description: ProcessDescription,
    on_lost: Callable[[], None] | None = None,
) -> AsyncIterator[PostgresEngine]:
    """Connect to the database that `database.url` names, as one of its nodes; create or migrate its tables.

    Args:
        config: The `database` section.
        home: The data folder.
        description: Tells other nodes about this process.
        on_lost: See `Database.open`.

    Raises:
        StoreLocked: a tool needs the database for itself.
        SchemaMismatch: a newer or an earlier Parley wrote it.
        StoreUnavailable: the URL is wrong, or the server cannot be used.
    """
    parameters = parse_url(config.url)
    await anyio.to_thread.run_sync(migrate, parameters)
    node = MemberNode(parameters, description, on_lost)
    engine: PostgresEngine | None = None
    try:
        await anyio.to_thread.run_sync(node.join)
        engine = PostgresEngine(node, home)
        yield engine
    except Exception:
        if engine is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(node.explain_failure)
        raise
    finally:
        with anyio.CancelScope(shield=True):
            if engine is not None:
                await engine.close()
            await anyio.to_thread.run_sync(node.release)
