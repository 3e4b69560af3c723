"""The proof's queries about schedules find gaps between due times, and runs without an occurrence."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.migrated import place_database
from tests.prove.journal import Journal, read_journal

_SCHEDULE = """
INSERT INTO schedule VALUES ('s', '', '', '', '', NULL, 'a', 'n', 'cron', '* * * * *', '', 0, NULL, '', 'once', 'queue',
    '', '', 'keep', '{}', '{}', 1, '', 300, 0, 0, 0, 0, '')
"""
_OCCURRENCE = "INSERT INTO schedule_occurrence VALUES ('s', ?, 'answered', '', ?, NULL, ?, NULL, 0)"
_RUN = """
INSERT INTO run (run_id, thread_id, assistant_id, status, multitask_strategy, start_key, created_at, updated_at)
VALUES (?, 't', 'a', 'success', 'enqueue', 'cron:s:60', 0, 0)
"""
_THREAD = (
    "INSERT INTO thread (thread_id, created_at, updated_at, state_updated_at) VALUES ('t', 0, 0, 0)"
)


def read(home: Path, due: Mapping[float, int], *runs: str) -> Journal:
    """Return the journal of occurrences (due time and number of missed ones) and runs."""
    with closing(sqlite3.connect(home / "parley.db", isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute(_SCHEDULE)
        connection.execute(_THREAD)
        for number, (at, missed) in enumerate(due.items()):
            connection.execute(_OCCURRENCE, (at, missed, f"r{number}"))
        for run in runs:
            connection.execute(_RUN, (run,))

        def query(statement: str) -> list[Any]:
            return connection.execute(statement).fetchall()

        return read_journal(query)


@pytest.mark.parametrize(
    ("due", "runs", "problem"),
    [
        ({60.0: 0, 120.0: 0, 180.0: 0}, ("r0",), ""),
        ({60.0: 3, 300.0: 0}, (), ""),
        ({60.0: 0, 180.0: 0}, (), "1 due times of schedules without an occurrence after: 60.0"),
        ({60.0: 0}, ("other",), "1 runs of schedules without an occurrence: other"),
    ],
)
def test_holes_and_unnoted_runs_are_found(
    tmp_path: Path, due: dict[float, int], runs: tuple[str, ...], problem: str
) -> None:
    journal = read(place_database(tmp_path), due, *runs)
    assert journal.problems == ((problem,) if problem else ())
    assert journal.occurrences == len(due)
