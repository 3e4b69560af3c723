"""Copies of small tables that every request looks at, such as tokens and sessions."""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import anyio

from store.errors import StoreError

RowT = TypeVar("RowT")
RowT_co = TypeVar("RowT_co", covariant=True)

log = logging.getLogger(__name__)

MAX_AGE_S = 2.0
"""How long a row may still be found after another process deleted it, seconds."""

MAX_AGE_UNKNOWN_S = 0.2
"""How long another process's new row may not be found yet, seconds. Limits the reads that wrong secrets cause."""


class CountedTable(Protocol[RowT_co]):
    """A table whose own changes are counted."""

    @property
    def changes(self) -> int:
        """Number of changes made through this object."""
        ...

    async def list_all(self) -> Sequence[RowT_co]:
        """Return the rows. Raises StoreError."""
        ...


class TableCopy(Generic[RowT]):
    """A copy of a table that is at most a few seconds old.

    Args:
        name: What the log calls the rows.
        table: The table.
        clock: Monotonic seconds.

    Attributes:
        is_readable: Whether the last read succeeded. If not, the copy is empty, because a row may have been deleted.
    """

    def __init__(self, name: str, table: CountedTable[RowT], *, clock: Callable[[], float]) -> None:
        self.is_readable = True
        self._name = name
        self._table = table
        self._clock = clock
        self._read_at = -math.inf
        self._changes = 0
        self._reading = anyio.Lock()
        self._rows: Sequence[RowT] = ()

    async def find(self, matches: Callable[[RowT], bool]) -> RowT | None:
        """Return the first row that matches; None = no row matches, or the database cannot be read."""
        if self._is_outdated(matches):
            async with self._reading:  # Another task may have read the table meanwhile.
                if self._is_outdated(matches):
                    await self._read()
        return self._match(matches)

    def _match(self, matches: Callable[[RowT], bool]) -> RowT | None:
        return next((row for row in self._rows if matches(row)), None)

    def _is_outdated(self, matches: Callable[[RowT], bool]) -> bool:
        age_s = self._clock() - self._read_at
        max_age_s = MAX_AGE_UNKNOWN_S if self._match(matches) is None else MAX_AGE_S
        return age_s > max_age_s or self._changes != self._table.changes

    async def _read(self) -> None:
        started_at, self._changes = self._clock(), self._table.changes
        try:
            self._rows = await self._table.list_all()
            self.is_readable = True
        except StoreError as error:
            log.warning("the %s could not be read: %s", self._name, error)
            self._rows, self.is_readable = (), False
        self._read_at = started_at
