"""Transaction: the changes that a unit of work can make to the database."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Value = str | int | float | bytes | None
Params = Mapping[str, Value]
Row = Mapping[str, Any]
Statement = tuple[str, Params]
"""A statement with `:name` parameters, and their values."""


class Transaction(Protocol):
    """The open transaction of a unit of work. Valid only inside `Database.transaction`.

    A unit may run several times, and only the last run counts. So it must change nothing but rows.

    On PostgreSQL, units run concurrently. A unit that depends on rows it read must lock them with `/* FOR UPDATE */` at
    the end of the SELECT, the conversation's row first, or take a named lock.
    """

    def run(self, sql: str, params: Params | None = None) -> Sequence[Row]:
        """Execute one statement with `:name` parameters. Return the rows of a SELECT or RETURNING, else none."""
        ...

    def run_all(self, statements: Sequence[Statement]) -> list[Sequence[Row]]:
        """Execute statements in order; return the rows of each. No statement may need the rows of another.

        They take one trip to PostgreSQL.
        """
        ...

    def lock(self, name: str) -> None:
        """Wait until no other transaction holds `name`; hold it until this one ends. SQLite has only one writer."""
        ...


class UnitRunner(Protocol):
    """Runs units of work: a database engine, or the writer of a SQLite file."""

    async def submit(self, work: Callable[[Transaction], T]) -> T:
        """Run a unit in a transaction; return its result once it is committed. Raises StoreUnavailable."""
        ...
