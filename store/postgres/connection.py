"""Connections to PostgreSQL: parameters, types, and errors that say what is wrong. Blocking calls."""

from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row
from psycopg.types.numeric import Int8Dumper

from store.errors import StoreUnavailable

OLDEST_SERVER = 15
"""The oldest version that Parley is tested with."""

Connection = psycopg.Connection[DictRow]

_DEFAULTS = {
    "application_name": "parley",
    "connect_timeout": "5",
    # With several hosts, use the primary: a replica serves only after it is promoted.
    "target_session_attrs": "read-write",
    # Notices within 10 s that a host has gone silent.
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
_SETTINGS = {
    # A process that freezes inside a transaction must not block others for long.
    "idle_in_transaction_session_timeout": "4000",
    "lock_timeout": "10000",
    "statement_timeout": "60000",
}


def parse_url(url: str) -> dict[str, Any]:
    """Return the connection parameters of a `postgresql://` URL. Raises StoreUnavailable."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise StoreUnavailable(
            f"database.url is not a valid PostgreSQL URL ({_one_line(error)}). "
            "It looks like postgresql://USER:PASSWORD@HOST:5432/DATABASE; "
            "write special characters in the password as %XX."
        ) from None
    settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
    options = f"{settings} {given.get('options') or ''}".strip()
    return {**_DEFAULTS, **given, "options": options, "client_encoding": "UTF8"}


def connect(parameters: dict[str, Any]) -> Connection:
    """Return an open connection in autocommit mode.

    Raises:
        StoreUnavailable: the server cannot be reached, refuses, or is older than `OLDEST_SERVER`.
    """
    try:
        connection = psycopg.connect(
            **parameters, autocommit=True, row_factory=dict_row, context=_adapters()
        )
    except psycopg.OperationalError as error:
        raise StoreUnavailable(f"PostgreSQL cannot be used: {_one_line(error)}") from error
    if connection.info.server_version < OLDEST_SERVER * 10_000:
        version = connection.info.server_version // 10_000
        connection.close()
        raise StoreUnavailable(
            f"The PostgreSQL server has version {version}; Parley needs {OLDEST_SERVER} or newer."
        )
    return connection


def unavailable(error: psycopg.Error) -> StoreUnavailable:
    """Return the store's error for a failed statement."""
    problem = StoreUnavailable(f"The database could not be used ({_one_line(error)}).")
    problem.__cause__ = error
    return problem


def _adapters() -> AdaptersMap:
    """Return psycopg's types with a single integer width, so that a statement is prepared once, not once per width."""
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_dumper(int, Int8Dumper)
    return adapters


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
