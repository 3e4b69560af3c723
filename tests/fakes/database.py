"""Real databases with faults: one fails on demand, as on a full or broken disk, and one answers late."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from typing_extensions import override

from store.config import StoreConfig
from store.database import Database, Params, Row, Statement, Transaction
from store.errors import StoreUnavailable
from store.transaction import T
from tests.fakes.migrated import place_database


class FailingDatabase(Database):
    """Fails on demand. Other calls use the real file.

    Attributes:
        writes, reads: Results of the next calls: True = raise StoreUnavailable; empty = succeed.
        is_down: Every call fails.
    """

    writes: deque[bool]
    reads: deque[bool]
    is_down: bool
    failures: int

    @classmethod
    @asynccontextmanager
    async def opened(cls, home: Path) -> AsyncIterator["FailingDatabase"]:
        async with Database.open(StoreConfig(), place_database(home)) as database:
            failing = cls(database.engine, retention_days=365)
            failing.writes, failing.reads, failing.is_down, failing.failures = (
                deque(),
                deque(),
                False,
                0,
            )
            yield failing

    def fail_write(self, number: int) -> None:
        """Make the write with this number from now (1 = the next) fail once."""
        self.writes.clear()
        self.writes.extend([False] * (number - 1) + [True])

    def fail_read(self, number: int) -> None:
        """Make the read with this number from now fail once."""
        self.reads.clear()
        self.reads.extend([False] * (number - 1) + [True])

    @override
    async def transaction(self, work: Callable[[Transaction], T], *, order: str = "") -> T:
        self._raise(self.writes)
        return await super().transaction(work, order=order)

    @override
    async def read(self, sql: str, params: Params | None = None) -> list[Row]:
        self._raise(self.reads)
        return await super().read(sql, params)

    def _raise(self, plan: deque[bool]) -> None:
        if (plan and plan.popleft()) or self.is_down:
            self.failures += 1
            raise StoreUnavailable("disk I/O error")


class LateDatabase(Database):
    """Answers late: the work is committed or read before its caller gets the result.

    Attributes:
        held: The next statement that contains this text waits after its commit; "" = none.
        committed: Set when it was committed. Setting `goes_on` lets its caller continue.
        reads: The executed SELECT statements, with their parameters.
    """

    def __init__(self, database: Database) -> None:
        vars(self).update(vars(database))
        self.held = ""
        self.committed, self.goes_on = anyio.Event(), anyio.Event()
        self.reads: list[tuple[str, Params]] = []

    @override
    async def transaction(self, work: Callable[[Transaction], T], *, order: str = "") -> T:
        statements: list[str] = []
        value = await super().transaction(
            lambda tx: work(_NotedTransaction(tx, statements)), order=order
        )
        await self._hold(" ".join(statements))
        return value

    @override
    async def execute(self, sql: str, params: Params, *, order: str = "") -> Sequence[Row]:
        rows = await super().execute(sql, params, order=order)
        await self._hold(sql)
        return rows

    @override
    async def read(self, sql: str, params: Params | None = None) -> list[Row]:
        self.reads.append((sql, params or {}))
        rows = await super().read(sql, params)
        await self._hold(sql)
        return rows

    async def _hold(self, sql: str) -> None:
        if self.held and self.held in sql:
            self.held = ""
            self.committed.set()
            await self.goes_on.wait()


class _NotedTransaction(Transaction):
    """Records the executed statements."""

    def __init__(self, tx: Transaction, statements: list[str]) -> None:
        self._tx = tx
        self._statements = statements

    @override
    def run(self, sql: str, params: Params | None = None) -> Sequence[Row]:
        self._statements.append(sql)
        return self._tx.run(sql, params)

    @override
    def run_all(self, statements: Sequence[Statement]) -> list[Sequence[Row]]:
        self._statements.extend(sql for sql, _ in statements)
        return self._tx.run_all(statements)

    @override
    def lock(self, name: str) -> None:
        self._tx.lock(name)


class RepeatingDatabase(Database):
    """Runs every unit of work twice, as an engine may. The changes of the first run are rolled back."""

    def __init__(self, database: Database) -> None:
        super().__init__(database.engine, retention_days=database.retention_days)

    @override
    async def transaction(self, work: Callable[[Transaction], T], *, order: str = "") -> T:
        def first(tx: Transaction) -> T:
            work(tx)
            raise _RolledBackError

        with suppress(_RolledBackError):
            await super().transaction(first, order=order)
        return await super().transaction(work, order=order)


class _RolledBackError(Exception):
    pass
