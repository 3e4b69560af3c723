"""Runs the store's statements on a connection, prepared by psycopg. Blocking calls.

Values are integers, floats, text, bytes and None.
"""

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.rows import DictRow, dict_row

from store.postgres.connection import Connection
from store.postgres.statements import translate
from store.transaction import Params, Row, Statement, Value

_BEGIN: Sequence[Statement] = (
    ("BEGIN", {}),
    ("SELECT CAST(pg_current_xact_id() AS text) AS number", {}),
)
"""The number tells whether the transaction was committed if its connection breaks meanwhile."""


class PreparedStatements:
    """Runs statements on a connection in autocommit mode; each is prepared once."""

    def __init__(self, connection: Connection) -> None:
        connection.prepared_max = None  # the store has a few hundred statements
        self._connection = connection

    def command(self, sql: bytes) -> None:
        """Execute a statement without parameters or rows, such as BEGIN. Raises psycopg.Error."""
        self._connection.execute(sql)

    def begin(self, statements: Sequence[Statement]) -> tuple[str, list[Sequence[Row]]]:
        """Begin a transaction with some statements; return its number and their rows. Raises psycopg.Error."""
        _, numbers, *rows = self.run_all([*_BEGIN, *statements])
        return str(numbers[0]["number"]), rows

    def run(self, sql: str, params: Params) -> Sequence[Row]:
        """Execute a statement; return its rows. Raises psycopg.Error."""
        return _rows(self._execute(sql, params))

    def run_all(self, statements: Sequence[Statement]) -> list[Sequence[Row]]:
        """Execute statements in one trip; return the rows of each. Raises psycopg.Error."""
        with self._connection.pipeline():
            cursors = [self._execute(sql, params) for sql, params in statements]
        return [_rows(cursor) for cursor in cursors]

    def _execute(self, sql: str, params: Params) -> psycopg.RawCursor[DictRow]:
        translated, names = translate(sql)
        values = [_value(params[name]) for name in names]
        cursor = psycopg.RawCursor(self._connection, row_factory=dict_row)
        return cursor.execute(translated.encode(), values, prepare=True, binary=True)


def _rows(cursor: psycopg.RawCursor[DictRow]) -> Sequence[Row]:
    return cursor.fetchall() if cursor.description else ()


def _value(value: Value) -> Any:  # noqa: ANN401 - what psycopg takes
    r"""Return a value as PostgreSQL can store it: text has no NUL, and a bool is a number.

    >>> _value("a\0b"), _value(True), _value(0.5), _value(None)
    ('a\ufffdb', 1, 0.5, None)
    """
    if isinstance(value, str):
        return value.replace("\0", "\ufffd") if "\0" in value else value
    return int(value) if isinstance(value, bool) else value
