"""Runs the store's statements on a connection, translated to PostgreSQL and prepared by psycopg. Blocking calls.

The statements are written for SQLite, mostly in the subset that both support. The differences:

- `:name` parameters are numbered: `$1`.
- `INDEXED BY name` is removed: PostgreSQL's planner knows how many rows there are.
- The comment `/* FOR UPDATE */` becomes a clause that locks rows. SQLite has one writer and needs no locks.
- SQLite's JSON functions get a prefix. migrations/0001_postgres.sql defines them, for text.

Values are integers, floats, text, bytes and None.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

import psycopg
from psycopg.rows import DictRow, dict_row

from store.errors import ValueRefused
from store.postgres.connection import Connection
from store.transaction import Params, Row, Statement, Value

_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**63 - 1

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_INDEXED_BY = re.compile(r"\s+INDEXED BY \w+")
_JSON = re.compile(r"\b(json(?:_\w+)?\()")
_FOR_UPDATE = re.compile(r"/\* FOR UPDATE((?: OF \w+)?(?: SKIP LOCKED)?) \*/")

_BEGIN: Sequence[Statement] = (
    ("BEGIN", {}),
    ("SELECT CAST(pg_current_xact_id() AS text) AS number", {}),
)
"""If the connection breaks, the number is used to find out whether the transaction was committed."""


@lru_cache(maxsize=1024)
def translate(sql: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement for PostgreSQL, and the names of its parameters in order.

    >>> translate("SELECT * FROM a INDEXED BY i WHERE b = :b AND c > :c AND d > :b /* FOR UPDATE */")
    ('SELECT * FROM a WHERE b = $1 AND c > $2 AND d > $1 FOR NO KEY UPDATE', ('b', 'c'))
    """
    sql = _JSON.sub(r"parley_\1", _INDEXED_BY.sub("", sql))
    sql = _FOR_UPDATE.sub(r"FOR NO KEY UPDATE\1", sql)
    names = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    numbers = {name: f"${number}" for number, name in enumerate(names, start=1)}
    return _PARAMETER.sub(lambda match: numbers[match[1]], sql), names


class PreparedStatements:
    """Runs statements on a connection in autocommit mode. Each statement is prepared once."""

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
        """Execute a statement; return its rows. Raises psycopg.Error, ValueRefused."""
        return _rows(self._execute(*_bind(sql, params)))

    def run_all(self, statements: Sequence[Statement]) -> list[Sequence[Row]]:
        """Execute statements in one trip; return the rows of each.

        Raises:
            psycopg.Error: A statement failed.
            ValueRefused: Nothing was sent.
        """
        bound = [_bind(sql, params) for sql, params in statements]
        with self._connection.pipeline():
            cursors = [self._execute(sql, values) for sql, values in bound]
        return [_rows(cursor) for cursor in cursors]

    def _execute(self, sql: bytes, values: Sequence[Value]) -> psycopg.RawCursor[DictRow]:
        cursor = psycopg.RawCursor(self._connection, row_factory=dict_row)
        return cursor.execute(sql, values, prepare=True, binary=True)


def _bind(sql: str, params: Params) -> tuple[bytes, list[Value]]:
    translated, names = translate(sql)
    return translated.encode(), [_value(params[name]) for name in names]


def _rows(cursor: psycopg.RawCursor[DictRow]) -> Sequence[Row]:
    return cursor.fetchall() if cursor.description else ()


def _value(value: Value) -> Value:
    r"""Return a value in a form that PostgreSQL can store: text without NUL, a bool as a number. Raises ValueRefused.

    >>> _value("a\0b"), _value(True), _value(0.5), _value(None)
    ('a\ufffdb', 1, 0.5, None)
    """
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        if not _MIN_INTEGER <= value <= _MAX_INTEGER:
            raise ValueRefused
        return int(value)
    return value


def _text(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueRefused from error
    return text.replace("\0", "\ufffd") if "\0" in text else text
