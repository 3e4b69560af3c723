"""Copies of databases in use: each is the state at one commit, complete, and checked."""

import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import pytest

from store.errors import DatabaseCorrupt, SchemaMismatch, StoreUnavailable
from store.snapshot import check_database, copy_database, schema_of


def write_pairs(file: Path, stop: Event, started: Event) -> None:
    """Increment two tables, which are equal after every commit."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA busy_timeout = 5000")
        while not stop.is_set():
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE a SET n = n + 1")
            connection.execute("INSERT INTO b (filler) VALUES (zeroblob(3000))")
            connection.execute("COMMIT")
            started.set()


def test_a_copy_of_a_database_under_writes_is_one_commit(tmp_path: Path) -> None:
    file = tmp_path / "source.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE a (n INTEGER)")
        connection.execute("CREATE TABLE b (filler BLOB)")
        connection.execute("INSERT INTO a VALUES (0)")
        connection.commit()
    stop, started = Event(), Event()
    writer = Thread(target=write_pairs, args=(file, stop, started))
    writer.start()
    counts = []
    try:
        assert started.wait(30)
        for number in range(10):
            copy = tmp_path / f"copy{number}.db"
            copy_database(file, copy)
            with closing(sqlite3.connect(f"{copy.as_uri()}?mode=ro", uri=True)) as opened:
                counts.append(
                    opened.execute("SELECT (SELECT n FROM a), count(*) FROM b").fetchone()
                )
            assert copy.stat().st_mode & 0o777 == 0o600
            assert [path.name for path in tmp_path.glob("copy*-*")] == []
            copy.unlink()
    finally:
        stop.set()
        writer.join()
    assert all(a == b for a, b in counts), counts
    assert counts[-1][0] > counts[0][0], "nothing was written in the meantime"


def test_a_damaged_database_is_not_copied_as_a_good_one(tmp_path: Path) -> None:
    file = tmp_path / "source.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE a (n TEXT)")
        connection.executemany("INSERT INTO a VALUES (?)", [("x" * 500,)] * 200)
        connection.commit()
    data = bytearray(file.read_bytes())
    data[8192:12288] = b"\xff" * 4096
    file.write_bytes(data)
    with pytest.raises(DatabaseCorrupt, match=r"source\.db is damaged"):
        copy_database(file, tmp_path / "copy.db")
    file.write_text("this is no database at all, but long enough to be one" * 20)
    with pytest.raises(DatabaseCorrupt):
        copy_database(file, tmp_path / "copy2.db")
    with pytest.raises(DatabaseCorrupt):
        schema_of(file)


def test_a_file_that_is_missing_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        copy_database(tmp_path / "none.db", tmp_path / "copy.db")
    assert not (tmp_path / "none.db").exists()


def test_rows_that_refer_to_nothing_are_damage(tmp_path: Path) -> None:
    file = tmp_path / "source.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE a (n INTEGER PRIMARY KEY)")
        connection.execute("CREATE TABLE b (n INTEGER REFERENCES a (n))")
        connection.execute("INSERT INTO b VALUES (7)")
        connection.commit()
    with pytest.raises(DatabaseCorrupt, match="a row of b refers to a row of a"):
        check_database(file)
    with pytest.raises(SchemaMismatch, match="earlier version"):
        schema_of(file)
