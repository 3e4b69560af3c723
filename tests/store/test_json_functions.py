"""Our JSON functions for PostgreSQL: the same results as SQLite's, and planned once per session."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import orjson
import psycopg
import pytest

from store.postgres.statements import translate

Execute = Callable[[str, Sequence[str | None]], list[Any]]

DOCUMENTS = (
    "{}",
    "[]",
    '{"a": 1, "b": null, "c": "x", "d": true, "e": {"f": [1, 2]}, "g": 1.5}',
    '["a", "\\\\u0000", "", 7, null, false, {"a": "b"}]',
    '{"\u00e9 \\"": "\\n\u4e2d"}',
)
PATCHES = (
    "{}",
    '{"a": 2}',
    '{"a": null, "h": "new"}',
    '{"c": {"deep": 1}, "b": "set"}',
)


@pytest.fixture
def engines(url: str) -> Iterator[tuple[Execute, Execute]]:
    """Yield functions that execute statements on SQLite and on PostgreSQL. Parameters are named :a, :b."""
    with (
        closing(sqlite3.connect(":memory:")) as lite,
        psycopg.connect(url, cursor_factory=psycopg.RawCursor) as full,
    ):

        def on_sqlite(sql: str, values: Sequence[str | None]) -> list[Any]:
            return lite.execute(sql, dict(zip("ab", values, strict=False))).fetchall()

        def on_postgres(sql: str, values: Sequence[str | None]) -> list[Any]:
            return full.execute(translate(sql)[0].encode(), values).fetchall()

        yield on_sqlite, on_postgres


@pytest.mark.parametrize("document", DOCUMENTS)
def test_fields_and_items_are_the_same(engines: tuple[Execute, Execute], document: str) -> None:
    """Their texts are the same, too. Numbers, booleans and nested values are spelled as in PostgreSQL."""
    on_sqlite, on_postgres = engines
    sql = "SELECT CAST(key AS TEXT), value FROM json_each(CAST(:a AS TEXT))"
    expected, found = dict(on_sqlite(sql, [document])), dict(on_postgres(sql, [document]))
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if isinstance(value, str) and value[:1] not in ("{", "["):
            assert found[key] == value


@pytest.mark.parametrize("patch", PATCHES)
def test_both_engines_patch_json_alike(engines: tuple[Execute, Execute], patch: str) -> None:
    """The objects have no field that is an object in both, because nested merging is not needed."""
    for document in (DOCUMENTS[0], DOCUMENTS[2], DOCUMENTS[4]):
        expected, found = (
            engine("SELECT json_patch(CAST(:a AS TEXT), CAST(:b AS TEXT))", [document, patch])
            for engine in engines
        )
        assert orjson.loads(str(found[0][0])) == orjson.loads(str(expected[0][0]))


def test_both_engines_measure_json_alike(engines: tuple[Execute, Execute]) -> None:
    for document in ("[]", DOCUMENTS[3]):
        expected, found = (
            engine("SELECT json_array_length(CAST(:a AS TEXT))", [document]) for engine in engines
        )
        assert found == expected


def test_null_gives_no_keys_and_no_patch(engines: tuple[Execute, Execute]) -> None:
    for engine in engines:
        assert engine("SELECT key FROM json_each(CAST(:a AS TEXT))", [None]) == []
        assert engine("SELECT json_patch(CAST(:a AS TEXT), '{}')", [None]) == [(None,)]


def test_zero_characters_are_left_out(engines: tuple[Execute, Execute]) -> None:
    """PostgreSQL's texts cannot contain them."""
    _, on_postgres = engines
    found = on_postgres(
        "SELECT value FROM json_each(CAST(:a AS TEXT))", ['["a\\u0000b", "\\\\u0000"]']
    )
    assert found == [("ab",), ("\\u0000",)]


def test_functions_with_a_body_of_their_own_are_planned_once_a_session(url: str) -> None:
    """Functions in SQL are inlined, or planned in each calling statement. These four were the expensive ones."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT proname FROM pg_proc JOIN pg_language ON pg_language.oid = prolang WHERE lanname = 'plpgsql'"
        ).fetchall()
    costly = {"parley_json", "parley_json_patch", "parley_json_array_length", "parley_json_each"}
    assert costly <= {name for (name,) in found}
