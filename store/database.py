"""The database: units of work and reads, on SQLite or PostgreSQL."""

import importlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from types import ModuleType

import anyio.to_thread

from store.config import StoreConfig
from store.data_folder import lock_folder
from store.engine import Engine
from store.errors import StoreUnavailable
from store.nodes import Nodes
from store.process_description import UNDESCRIBED, ProcessDescription
from store.signals import Signals
from store.sqlite_engine import open_sqlite
from store.transaction import Params, Row, Statement, T, Transaction, Value

__all__ = [
    "Database",
    "Params",
    "Row",
    "Statement",
    "Transaction",
    "Value",
    "migrate_schema",
]

_PROBE = """
INSERT INTO received_id (channel, workspace, kind, chat, external_id, received_at)
VALUES ('', '', 'event', '', 'probe', :now)
ON CONFLICT (channel, workspace, kind, chat, external_id) DO UPDATE SET received_at = excluded.received_at
"""


class Database:
    """An open database.

    Attributes:
        retention_days: `database.retention_days` of the configuration.
        engine: Stores the rows.
    """

    def __init__(self, engine: Engine, *, retention_days: int) -> None:
        self.engine = engine
        self.retention_days = retention_days

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        config: StoreConfig,
        home: Path,
        description: ProcessDescription = UNDESCRIBED,
        on_lost: Callable[[], None] | None = None,
    ) -> AsyncIterator["Database"]:
        """Lock the data folder `home`; open (create, migrate) the database that `database.url` names.

        On PostgreSQL this process becomes one of the nodes that share the database.

        Args:
            config: The `database` section.
            home: The data folder.
            description: Tells other nodes about this process.
            on_lost: Called once, on a worker thread, if this process was frozen or cut off and its work fails
                over to other nodes. Every call fails from then on; the process should end at once.

        Raises:
            StoreLocked: another process holds the data folder, or a tool needs the PostgreSQL database for itself.
            DatabaseCorrupt: the file is damaged; a copy named in the message was kept and nothing was changed.
            SchemaMismatch: a newer or an earlier Parley wrote it.
            StoreUnavailable: the URL is wrong, the folder cannot be written, or PostgreSQL cannot be used.
        """
        async with AsyncExitStack() as stack:
            held = stack.enter_context(ExitStack())
            await anyio.to_thread.run_sync(held.enter_context, lock_folder(home))
            engine = await stack.enter_async_context(
                _open_engine(config, home, description, on_lost)
            )
            yield cls(engine, retention_days=config.retention_days)

    @property
    def signals(self) -> Signals:
        """Short messages between the processes that use this database. Any of them may be lost."""
        return self.engine.signals

    @property
    def nodes(self) -> Nodes:
        """The processes that share the database."""
        return self.engine.nodes

    @property
    def outage(self) -> str:
        """Why the database cannot be used now, for administrators; "" = it works.

        The error of the last write that changed something, or of the last read. Cheap.
        """
        return self.engine.outage

    @property
    def is_owner(self) -> bool:
        """Whether it is certain that no other node has ended this process. Cheap.

        False after this process was frozen or cut off from PostgreSQL, until a heartbeat succeeds or the process
        ends. Anything that is sent without writing a row must wait until then.
        """
        return self.engine.is_owner

    async def check_writable(self) -> None:
        """Return if a message can be stored now. Writes (one page) only after a failed call.

        Raises:
            StoreUnavailable: The database cannot be written, or the file was deleted or replaced.
        """
        probe = _PROBE if self.outage else "SELECT 1"
        params: Params = {"now": time.time()} if self.outage else {}
        await self.transaction(lambda tx: tx.run(probe, params))

    def free_bytes(self) -> int:
        """Return the free space of the disk that holds the file (PostgreSQL: the data folder); 0 if it is gone."""
        return self.engine.free_bytes()

    async def transaction(self, work: Callable[[Transaction], T], *, order: str = "") -> T:
        """Run `work` in a transaction, on a worker thread, and return its result once it is committed.

        Units with the same `order` run in the order of the calls; "" = any order.
        `work` must not block and must not keep the transaction. It must only change the database, because
        PostgreSQL may run it again. If the caller is canceled while it waits, the unit may still be
        committed.

        Raises:
            StoreUnavailable: the database cannot be written (disk full), or was closed.
            ValueRefused: a parameter cannot be stored. Only this unit is undone.
        """
        return await self.engine.submit(work, order=order)

    async def execute(self, sql: str, params: Params, *, order: str = "") -> Sequence[Row]:
        """Run one statement like a unit of `transaction`; return its rows (of RETURNING, otherwise none).

        Cheaper than a unit on PostgreSQL, where statements of many callers are sent and committed together.

        Args:
            sql: The statement. It must be as fast as one that changes a few rows by their keys.
            params: Its parameters.
            order: See `transaction`.

        Raises:
            StoreUnavailable, ValueRefused: see `transaction`.
        """
        return await self.engine.execute(sql, params, order=order)

    async def read(self, sql: str, params: Params | None = None) -> list[Row]:
        """Return the rows of one SELECT, as committed now.

        Raises:
            StoreUnavailable: the database cannot be read, or was closed.
            ValueRefused: a parameter cannot be stored.
        """
        return await self.engine.read(sql, params or {})


def migrate_schema(config: StoreConfig) -> int:
    """Create or update the tables of a PostgreSQL database; return the version of the schema. Blocks.

    Raises:
        SchemaMismatch: a newer or an earlier Parley wrote it.
        StoreUnavailable: the URL is wrong, the role lacks the privileges, or the server cannot be used.
    """
    parameters = _load_postgres("connection").parse_url(config.url)
    return int(_load_postgres("schema").migrate(parameters))


def _open_engine(
    config: StoreConfig,
    home: Path,
    description: ProcessDescription,
    on_lost: Callable[[], None] | None,
) -> AbstractAsyncContextManager[Engine]:
    if config.is_sqlite:
        return open_sqlite(config, home, description.name)
    if not config.is_postgres:
        raise StoreUnavailable(
            "database.url must be sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE."
        )
    opening: AbstractAsyncContextManager[Engine]
    opening = _load_postgres("engine").open_postgres(config, home, description, on_lost)
    return opening


def _load_postgres(module: str) -> ModuleType:
    """Import a module of store/postgres. Done on demand, because the driver takes 0.13 s."""
    try:
        return importlib.import_module(f"store.postgres.{module}")
    except ImportError as error:
        raise StoreUnavailable(
            f"database.url names PostgreSQL, but its driver cannot be loaded ({error}): "
            "install psycopg[binary]."
        ) from error
