"""The one door to SQLite: grouped writes on one thread, reads through aiosqlite."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from store.config import StoreConfig

T = TypeVar("T")
Value = str | int | float | bytes | None
Params = Mapping[str, Value]
Row = Mapping[str, Any]


class Transaction(Protocol):
    """What a unit of work may do. Lives only inside `Database.transaction`."""

    def run(self, sql: str, params: Params | None = None) -> Sequence[Row]:
        """Execute one statement with `:name` parameters; rows of a SELECT or RETURNING, else empty."""
        ...


class Database:
    """A journal file, opened.

    Writes run on one thread of their own, many callers' units in one commit (group commit), each unit in a
    savepoint of its own: a unit that raises undoes only itself. `transaction` returns after the commit is
    on disk (WAL, synchronous=FULL).
    """

    @classmethod
    @asynccontextmanager
    async def open(cls, config: StoreConfig, home: Path) -> AsyncIterator["Database"]:
        """Open (and make, and migrate) the journal of the data folder `home`.

        Raises:
            Locked: another process has it.
            Corrupt: the file is damaged; a copy named in the message was kept and nothing was changed.
            SchemaTooNew: a newer Parley wrote it.
            Unavailable: the folder cannot be made or written.
        """
        raise NotImplementedError
        yield

    async def transaction(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on the writer thread and return its result once it is committed."""
        raise NotImplementedError

    async def read(self, sql: str, params: Params | None = None) -> list[Row]:
        """Return the rows of one SELECT, as committed now."""
        raise NotImplementedError
