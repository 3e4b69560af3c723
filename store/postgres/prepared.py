"""Prepared statements through libpq: a quarter of the CPU time of psycopg's cursors, which wait in Python.

Values are integers, floats, text, bytes and None; rows come in PostgreSQL's binary format. Blocking calls.
"""

import select
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import errors
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format, abc

from store.postgres.connection import Connection
from store.postgres.statements import translate
from store.transaction import Params, Row, Statement, Value

_BEGIN: Sequence[Statement] = (
    ("BEGIN", {}),
    ("SELECT CAST(pg_current_xact_id() AS text) AS number", {}),
)
"""The number tells later whether the transaction was committed, if its connection breaks meanwhile."""

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

_Bound = tuple[bytes, list[Any], list[Format]]
"""A prepared statement's name, its values, and their formats."""

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

    def begin(self, statements: Sequence[Statement]) -> tuple[str, list[Sequence[Row]]]:
        """Begin a transaction with some statements; return its number, and their rows. Raises psycopg.Error."""
        _, numbers, *rows = self.run_all([*_BEGIN, *statements])
        return str(numbers[0]["number"]), rows

    def run(self, sql: str, params: Params) -> Sequence[Row]:
        """Execute a statement of the store; return its rows. Raises psycopg.Error."""
        name, values, formats = self._bind(sql, params)
        result = self._pgconn.exec_prepared(name, values, formats, Format.BINARY)
        _check(self._pgconn, result)
        return self._rows(name, result) if result.ntuples else ()

    def run_all(self, statements: Sequence[Statement]) -> list[Sequence[Row]]:
        """Execute statements in one trip; return the rows of each. Raises psycopg.Error."""
        bound = [self._bind(sql, params) for sql, params in statements]
        self._pgconn.enter_pipeline_mode()
        try:
            for name, values, formats in bound:
                self._pgconn.send_query_prepared(name, values, formats, Format.BINARY)
            self._pgconn.pipeline_sync()
            results = self._exchange()
        finally:
            with suppress(psycopg.Error):  # the connection broke
                self._pgconn.exit_pipeline_mode()
        for result in results:
            _check(self._pgconn, result)
        return [
            self._rows(name, result) if result.ntuples else ()
            for (name, _, _), result in zip(bound, results, strict=True)
        ]

    def _exchange(self) -> list[abc.PGresult]:
        """Send what is queued; return the results of its statements. Raises psycopg.OperationalError.

        Only the waiting lets other threads run: each call that does is paid with the interpreter's lock, for which a
        busy event loop makes this thread wait up to 5 ms.
        """
        poll = select.poll()
        poll.register(self._pgconn.socket, select.POLLIN | select.POLLOUT)
        while self._pgconn.flush():
            if poll.poll()[0][1] & ~select.POLLOUT:
                self._pgconn.consume_input()
        poll.modify(self._pgconn.socket, select.POLLIN)
        results: list[abc.PGresult] = []
        while True:
            while self._pgconn.is_busy():
                poll.poll()
                self._pgconn.consume_input()
            result = self._pgconn.get_result()
            if result is None:  # after each statement
                if self._pgconn.status != ConnStatus.OK:
                    raise psycopg.OperationalError("the connection was lost")
            elif result.status == ExecStatus.PIPELINE_SYNC:
                return results
            else:
                results.append(result)

    def _bind(self, sql: str, params: Params) -> _Bound:
        """Prepare a statement, unless it is; return its name, its values and their formats. Raises psycopg.Error."""
        translated, names = translate(sql)
        encoded = [_encode(params[name]) for name in names]
        types = tuple(item[0] for item in encoded)
        return (
            self._names.get((sql, types)) or self._prepare(sql, translated, types),
            [item[1] for item in encoded],
            [Format.BINARY if item[0] == _BYTEA else Format.TEXT for item in encoded],
        )

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
