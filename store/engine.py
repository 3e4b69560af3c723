"""The interface of a database engine (SQLite or PostgreSQL), for `Database`."""

from collections.abc import Callable, Sequence
from typing import Protocol

from store.nodes import Nodes
from store.signals import Signals
from store.transaction import Params, Row, T, Transaction


class Engine(Protocol):
    """An open database."""

    has_checkpoints: bool
    """Whether the states of threads are in tables of this database, not in a separate file."""

    signals: Signals
    """Signals between the processes that use this database."""

    @property
    def nodes(self) -> Nodes:
        """The processes that share it."""
        ...

    @property
    def outage(self) -> str:
        """Why the database cannot be used now; "" = it works. Cheap."""
        ...

    @property
    def is_owner(self) -> bool:
        """Whether it is certain that no other node has ended this process. Cheap."""
        ...

    async def submit(self, work: Callable[[Transaction], T], *, order: str = "") -> T:
        """Run a unit of work in a transaction. Return its result when it is on disk.

        Units with the same `order` run in the order of the calls; "" = any order. The unit of a canceled caller
        may still be committed.

        Raises:
            StoreUnavailable: nothing can be written, or the database was closed.
        """
        ...

    async def execute(self, sql: str, params: Params, *, order: str = "") -> Sequence[Row]:
        """Run one statement like a unit of `submit`; return its rows. See `Database.execute`."""
        ...

    async def read(self, sql: str, params: Params) -> list[Row]:
        """Return the rows of one SELECT, as committed now. Raises StoreUnavailable."""
        ...

    def free_bytes(self) -> int:
        """Return the free space of the disk with the rows (PostgreSQL: with the files); 0 if it is gone."""
        ...
