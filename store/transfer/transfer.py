"""Moves rows from one database to another, goes on after an interruption, and compares both. Blocking calls."""

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Literal

from store.config import StoreConfig
from store.data_folder import lock_folder
from store.errors import StoreUnavailable
from store.transfer.sqlite_installation import open_sqlite_source, open_sqlite_target
from store.transfer.tables import NUMBERED, TABLES, Cell, Installation, TableChecksum, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferProgress:
    """How far a move is.

    Attributes:
        step: What is done to the table now.
        table: The table.
        rows: Its rows that are done.
        total: All rows of the table.
    """

    step: Literal["copy", "verify"]
    table: str
    rows: int
    total: int


Reporter = Callable[[TransferProgress], None]


def transfer(
    source: StoreConfig, target: StoreConfig, home: Path, report: Reporter, *, restart: bool
) -> dict[str, TableChecksum]:
    """Move all rows from SQLite to PostgreSQL or back, then compare both sides; the source keeps them.

    Called again after an interruption, it goes on where it was. Until it is done, Parley refuses to use the target.

    Args:
        source: Where the rows are: its `url`.
        target: Where they go: a database without rows, or files that do not exist.
        home: The data folder of the SQLite files.
        report: Called after each batch of rows.
        restart: Discard what an earlier attempt copied.

    Returns:
        The checksum of each table, equal on both sides.

    Raises:
        StoreLocked: A service uses the data folder or the database.
        StoreUnavailable: One side cannot be used, or the sides differ.
    """
    with ExitStack() as stack:
        stack.enter_context(lock_folder(home))
        origin = stack.enter_context(_open_source(source, home))
        destination = stack.enter_context(_open_target(target, home, origin.name, restart=restart))
        if destination is None:
            return {
                table: _checksums([origin], table, origin.columns(table), report)[0]
                for table in TABLES
            }
        columns = {table: _columns(origin, destination, table) for table in TABLES}
        for table in TABLES:
            _copy(origin, destination, table, columns[table], report)
        checksums = {
            table: _compare(origin, destination, table, columns[table], report) for table in TABLES
        }
        destination.finish({table: origin.last_number(table) for table in NUMBERED})
        return checksums


def _open_source(config: StoreConfig, home: Path) -> AbstractContextManager[Installation]:
    if config.is_sqlite:
        return open_sqlite_source(config, home)
    opened: AbstractContextManager[Installation] = _postgres().open_postgres_source(config)
    return opened


def _open_target(
    config: StoreConfig, home: Path, source: str, *, restart: bool
) -> AbstractContextManager[Target | None]:
    if config.is_sqlite:
        return open_sqlite_target(config, home, source, restart=restart)
    opened: AbstractContextManager[Target | None]
    opened = _postgres().open_postgres_target(config, source, restart=restart)
    return opened


def _postgres() -> ModuleType:
    """Import the side that needs PostgreSQL's driver."""
    return importlib.import_module("store.transfer.postgres_installation")


def _columns(source: Installation, target: Installation, table: str) -> list[str]:
    columns = source.columns(table)
    if columns != target.columns(table):
        raise StoreUnavailable(
            f"The table {table} of {target.name} has other columns than that of {source.name}."
        )
    return columns


def _copy(
    source: Installation, target: Target, table: str, columns: Sequence[str], report: Reporter
) -> None:
    """Copy the rows behind the last one that the target has: they are written in the order of the key."""
    total, done = source.count(table), target.count(table)
    for rows in _batches(source, table, columns, target.last_key(table)):
        target.insert(table, columns, rows)
        done += len(rows)
        report(TransferProgress(step="copy", table=table, rows=done, total=total))


def _compare(
    source: Installation, target: Installation, table: str, columns: Sequence[str], report: Reporter
) -> TableChecksum:
    checksum, copied = _checksums([source, target], table, columns, report)
    if checksum != copied:
        raise StoreUnavailable(
            f"The table {table} differs: {checksum.rows} rows in {source.name}, {copied.rows} in {target.name}, "
            "or other values. Something has changed them since the copy was begun. Run it again with --force."
        )
    return checksum


def _checksums(
    sides: Sequence[Installation], table: str, columns: Sequence[str], report: Reporter
) -> list[TableChecksum]:
    """Return the checksum of a table on each side. They are read together, so that progress is reported once."""
    total, checksums = sides[0].count(table), [TableChecksum() for _ in sides]
    every_side = (_batches(side, table, columns, None) for side in sides)
    for batches in zip_longest(*every_side, fillvalue=[]):
        checksums = [one.add(rows) for one, rows in zip(checksums, batches, strict=True)]
        done = checksums[0].rows
        report(TransferProgress(step="verify", table=table, rows=done, total=total))
    return checksums


def _batches(
    side: Installation, table: str, columns: Sequence[str], after: Sequence[Cell] | None
) -> Iterator[list[tuple[Cell, ...]]]:
    key = [columns.index(column) for column in TABLES[table]]
    while rows := side.rows(table, columns, after):
        yield rows
        after = [rows[-1][place] for place in key]
