"""Prepared statements through libpq: a quarter of the CPU time of psycopg's cursors, which wait in Python.

Values are integers, floats, text, bytes and None; rows come in PostgreSQL's binary format. Blocking calls.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import errors
from psycopg.pq import DiagnosticField, ExecStatus, Format, abc

from store.postgres.connection import Connection
from store.postgres.statements import translate
from store.transaction import Params, Row, Value

_BEGIN = b"BEGIN; SELECT pg_current_xact_id()"
"""One trip. The number tells later whether the transaction was committed, if its connection breaks meanwhile."""

_FLOAT = struct.Struct("!d")

_DECODERS: Mapping[int, Callable[[bytes], Any]] = {
    16: lambda data: data == b"\x01",  # boolean
    17: bytes,  # bytea
    20: lambda data: int.from_bytes(data, signed=True),  # bigint
    21: lambda data: int.from_bytes(data, signed=True),  # smallint
    23: lambda data: int.from_bytes(data, signed=True),  # integer
    25: bytes.decode,  # text
    701: lambda data: _FLOAT.unpack(data)[0],  # double precision
    705: bytes.decode,  # a literal
    1043: bytes.decode,  # varchar
    2278: lambda _: None,  # void
}
"""By the number of the type (pg_type.oid)."""

_Columns = tuple[tuple[str, Callable[[bytes], Any]], ...]


class PreparedStatements:
    """The statements that were prepared on a connection."""

    def __init__(self, connection: Connection) -> None:
        self._pgconn = connection.pgconn
        self._names: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self._columns: dict[bytes, _Columns] = {}

    def command(self, sql: bytes) -> None:
        """Execute a statement without parameters and rows: BEGIN and the like. Raises psycopg.Error."""
        _check(self._pgconn, self._pgconn.exec_(sql))

    def begin(self) -> str:
        """Begin a transaction; return its number. Raises psycopg.Error."""
        result = self._pgconn.exec_(_BEGIN)
        _check(self._pgconn, result)
        return (result.get_value(0, 0) or b"").decode()

    def run(self, sql: str, params: Params) -> Sequence[Row]:
        """Execute a statement of the store; return its rows. Raises psycopg.Error."""
        translated, names = translate(sql)
        encoded = [_encode(params[name]) for name in names]
        values: list[Any] = [item[1] for item in encoded]
        types = tuple(item[0] for item in encoded)
        name = self._names.get((sql, types)) or self._prepare(sql, translated, types)
        result = self._pgconn.exec_prepared(
            name,
            values,
            [Format.BINARY if item[0] == _BYTEA else Format.TEXT for item in encoded],
            Format.BINARY,
        )
        _check(self._pgconn, result)
        return self._rows(name, result) if result.ntuples else ()

    def _prepare(self, sql: str, translated: str, types: tuple[int, ...]) -> bytes:
        name = f"s{len(self._names)}".encode()
        _check(self._pgconn, self._pgconn.prepare(name, translated.encode(), types))
        self._names[sql, types] = name
        return name

    def _rows(self, name: bytes, result: abc.PGresult) -> list[Row]:
        columns = self._columns.get(name)
        if columns is None:
            columns = self._columns[name] = _columns(result)
        return [
            {
                column: None if (data := result.get_value(row, number)) is None else decode(data)
                for number, (column, decode) in enumerate(columns)
            }
            for row in range(result.ntuples)
        ]


_BYTEA, _BIGINT, _DOUBLE, _UNKNOWN = 17, 20, 701, 0


def _encode(value: Value) -> tuple[int, bytes | None]:
    r"""Return the type of a parameter, and its value in the text format (bytes: as they are).

    >>> _encode("a\0b"), _encode(True), _encode(0.5), _encode(None)
    ((0, b'a\xef\xbf\xbdb'), (20, b'1'), (701, b'0.5'), (0, None))
    """
    if isinstance(value, str):
        # PostgreSQL's text has no NUL, and libpq ends a text there.
        return _UNKNOWN, (value.replace("\0", "\ufffd") if "\0" in value else value).encode()
    if value is None:
        return _UNKNOWN, None
    if isinstance(value, int):
        return _BIGINT, b"%d" % value
    if isinstance(value, float):
        return _DOUBLE, repr(value).encode()
    return _BYTEA, value


def _columns(result: abc.PGresult) -> _Columns:
    return tuple(
        ((result.fname(number) or b"").decode(), _DECODERS[result.ftype(number)])
        for number in range(result.nfields)
    )


def _check(pgconn: abc.PGconn, result: abc.PGresult) -> None:
    """Raise psycopg.Error if a statement failed."""
    if result.status in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
        return
    state = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
    text = result.error_field(DiagnosticField.MESSAGE_PRIMARY) or pgconn.error_message
    message = text.decode(errors="replace").strip()
    try:
        kind: type[psycopg.Error] = errors.lookup(state)
    except KeyError:
        kind = psycopg.OperationalError
    raise kind(message)
