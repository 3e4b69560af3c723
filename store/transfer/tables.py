"""The tables that are moved, and checksums of their rows. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

from typing_extensions import override

Cell = str | int | float | bytes | None
Cells = Sequence[Cell]

TABLES: Mapping[str, tuple[str, ...]] = {
    "conversation": ("id",),
    "inbox": ("id",),
    "received_id": ("channel", "workspace", "kind", "chat", "external_id"),
    "outbox": ("id",),
    "message_topic": ("channel", "workspace", "chat", "message_id"),
    "pairing": ("code",),
    "thread": ("thread_id",),
    "run": ("seq",),
    "conversation_settings": ("channel", "workspace", "chat", "topic"),
    "item": ("namespace", "key"),
    "assistant": ("assistant_id",),
    "assistant_version": ("assistant_id", "version"),
    "chat_migration": ("channel", "workspace", "old_chat"),
    "credential": ("channel", "name"),
    "api_token": ("name",),
    "file_area": ("area",),
    "stored_file": ("area", "path"),
    "checkpoints": ("thread_id", "checkpoint_ns", "checkpoint_id"),
    "writes": ("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx"),
    "message_chunks": ("thread_id", "name"),
    "run_webhook": ("run_id",),
    "run_request": ("run_id",),
    "chat": ("channel", "workspace", "chat"),
    "broadcast": ("id",),
    "broadcast_chat": ("channel", "broadcast_id", "workspace", "chat"),
}
"""Primary keys. A table comes after those that it refers to."""

NUMBERED = ("conversation", "inbox", "outbox", "run", "broadcast")
"""Tables whose key is a number that the database assigns: it assigns none twice, also after the move."""

DERIVED = frozenset({"thread_metadata", "schema_version", "node", "chat_owner", "node_message"})
"""Tables that are not moved: triggers, migrations and living nodes fill them."""


class Installation(Protocol):
    """One side of a move. Blocking calls, which raise StoreUnavailable."""

    name: str
    """For people: without a password."""

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns, sorted."""
        ...

    def count(self, table: str) -> int:
        """Return the number of a table's rows."""
        ...

    def rows(
        self, table: str, columns: Sequence[str], after: Cells | None
    ) -> list[tuple[Cell, ...]]:
        """Return the next rows in the order of the key. `after`: a key; None = from the first row on."""
        ...

    def last_key(self, table: str) -> Cells | None:
        """Return the last key of a table; None if it is empty."""
        ...

    def last_number(self, table: str) -> int:
        """Return the last number that was assigned in one of the `NUMBERED` tables; 0 = none."""
        ...


class Target(Installation, Protocol):
    """The side that rows are moved to."""

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Cells]) -> None:
        """Add rows in one transaction."""
        ...

    def finish(self, numbers: Mapping[str, int]) -> None:
        """Let Parley use the rows. `numbers`: the last numbers of the `NUMBERED` tables."""
        ...


@dataclass(frozen=True, slots=True)
class TableChecksum:
    """The number of rows, and a sum over their hashes, which does not depend on their order."""

    rows: int = 0
    total: int = 0

    def add(self, rows: Iterable[Cells]) -> "TableChecksum":
        """Return the checksum of these rows too.

        >>> one = TableChecksum().add([("a", 1), ("b", None)])
        >>> one == TableChecksum().add([("b", None)]).add([("a", 1)])
        True
        """
        hashes = [
            int.from_bytes(blake2b(repr(tuple(row)).encode(), digest_size=16).digest())
            for row in rows
        ]
        return TableChecksum(self.rows + len(hashes), (self.total + sum(hashes)) % 2**128)

    @override
    def __str__(self) -> str:
        return f"{self.total:032x}"


def comparable(cell: Cell) -> Cell:
    r"""Return a value as PostgreSQL stores it: its text has no NUL.

    >>> comparable("a\0b"), comparable(1)
    ('a\ufffdb', 1)
    """
    return cell.replace("\0", "\ufffd") if isinstance(cell, str) else cell
