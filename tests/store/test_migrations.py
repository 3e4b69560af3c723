"""The schema's steps are applied once and in order. Databases of other versions are refused and stay unchanged."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from store import checkpoints, migrations
from store.config import StoreConfig
from store.database import Database, migrate_schema
from store.database_check import find_database_problem
from store.errors import SchemaMismatch
from store.migrations import SchemaName, migrate, steps
from tests.fakes.migrated import place_database
from tests.fakes.postgres import PostgresServer

SCHEMAS: tuple[SchemaName, ...] = ("sqlite", "checkpoints", "postgres")
EARLIER = "CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL)"


@contextmanager
def opened(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a file, which is created if necessary."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        yield connection


@pytest.fixture
def later_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a copy of step 1 of each schema, which the program reads. Tests add further steps."""
    folder = tmp_path / "steps"
    folder.mkdir()
    for schema in SCHEMAS:
        (folder / f"0001_{schema}.sql").write_text(steps(schema)[0])
    monkeypatch.setattr(migrations, "FOLDER", folder)
    return folder


def test_steps_are_numbered_from_one_without_gaps() -> None:
    for schema in SCHEMAS:
        names = sorted(
            one.name for one in migrations.FOLDER.iterdir() if one.name.endswith(f"_{schema}.sql")
        )
        assert names == [f"{number:04d}_{schema}.sql" for number in range(1, len(names) + 1)]
        assert len(steps(schema)) == len(names) > 0


def test_every_table_has_a_comment() -> None:
    for schema in SCHEMAS:
        for sql in steps(schema):
            lines = sql.splitlines()
            for number, line in enumerate(lines):
                if line.startswith("CREATE TABLE"):
                    assert lines[number - 1].startswith("-- "), (schema, line)


def test_a_step_is_applied_once_and_keeps_the_rows(tmp_path: Path, later_steps: Path) -> None:
    with opened(tmp_path / "x.db") as connection:
        assert [migrate(connection, "sqlite", "x") for _ in range(2)] == [1, 1]
        connection.execute("INSERT INTO item VALUES ('a.', 'k', '{}', 1, 1, NULL, NULL)")
        (later_steps / "0002_sqlite.sql").write_text(
            "ALTER TABLE item ADD COLUMN color TEXT; UPDATE item SET color = 'red';"
        )
        (later_steps / "0003_sqlite.sql").write_text("ALTER TABLE item RENAME COLUMN color TO hue;")
        assert [migrate(connection, "sqlite", "x") for _ in range(2)] == [3, 3]
        assert connection.execute("SELECT key, hue FROM item").fetchall() == [("k", "red")]
        versions = connection.execute("SELECT version FROM parley_schema ORDER BY version")
        assert versions.fetchall() == [(1,), (2,), (3,)]


def test_a_step_that_fails_changes_nothing(tmp_path: Path, later_steps: Path) -> None:
    with opened(tmp_path / "x.db") as connection:
        migrate(connection, "sqlite", "x")
        (later_steps / "0002_sqlite.sql").write_text("CREATE TABLE a (b TEXT); DROP TABLE missing;")
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            migrate(connection, "sqlite", "x")
        assert connection.execute("SELECT max(version) FROM parley_schema").fetchone() == (1,)
        assert not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'a'").fetchall()


def test_later_steps_are_applied_to_postgresql_too(
    server: PostgresServer, later_steps: Path
) -> None:
    with server.database(migrated=False) as url:
        assert migrate_schema(StoreConfig(url=url)) == 1
        (later_steps / "0002_postgres.sql").write_text("ALTER TABLE item ADD COLUMN color TEXT;")
        assert [migrate_schema(StoreConfig(url=url)) for _ in range(2)] == [2, 2]


async def test_a_folder_of_an_earlier_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "parley.db"
    with opened(file) as connection:
        connection.execute(EARLIER)
        connection.execute("INSERT INTO schema_version VALUES (25, 0)")
    before = file.read_bytes()
    sentence = (
        f"The database {file} was written by an earlier version of Parley, whose data this version cannot use. "
        "Start with an empty data folder (PARLEY_HOME), or keep using the earlier version."
    )
    with pytest.raises(SchemaMismatch, match=re.escape(sentence)):
        async with Database.open(StoreConfig(), tmp_path):
            pass
    assert find_database_problem(StoreConfig(), tmp_path) == sentence
    with opened(file) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [
            ("schema_version",)
        ]
    assert len(file.read_bytes()) == len(before)


async def test_earlier_checkpoints_are_refused(tmp_path: Path) -> None:
    place_database(tmp_path)
    with opened(tmp_path / checkpoints.FILE) as connection:
        connection.execute("CREATE TABLE checkpoints (thread_id TEXT)")
    with pytest.raises(SchemaMismatch, match="earlier version"):
        checkpoints.connect_checkpoints(tmp_path / checkpoints.FILE)
    assert "earlier version" in find_database_problem(StoreConfig(), tmp_path)


async def test_a_postgresql_database_of_an_earlier_version_is_refused(
    server: PostgresServer, tmp_path: Path
) -> None:
    with server.database(migrated=False) as url:
        with psycopg.connect(url) as connection:
            connection.execute(EARLIER)
        config = StoreConfig(url=url)
        with pytest.raises(SchemaMismatch, match="Start with an empty database"):
            async with Database.open(config, tmp_path):
                pass
        with pytest.raises(SchemaMismatch):
            migrate_schema(config)
        assert "earlier version" in find_database_problem(config, tmp_path)
