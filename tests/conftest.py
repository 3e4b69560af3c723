"""Fixtures for the whole suite."""

import gc
import logging
from collections.abc import Iterator

import pytest

from tests.fakes.postgres import PostgresServer, postgres_server

gc.disable()  # imports leave almost no garbage, and looking for it takes half of the time of the collection


SLOW_FOLDERS = ("tests/faults/", "tests/fuzz/", "tests/journeys/", "tests/prove/")
"""Their tests wait for seconds each: they start first, some in each worker, so that none is left at the end."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each worker of pytest-xdist, which takes a part of the list, as many of the slow tests."""
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers == 1:
        return
    slow = [item for item in items if item.nodeid.startswith(SLOW_FOLDERS)]
    quick = [item for item in items if not item.nodeid.startswith(SLOW_FOLDERS)]
    size = -(-len(quick) // workers)
    items[:] = [
        item
        for worker in range(workers)
        for item in (*slow[worker::workers], *quick[worker * size : (worker + 1) * size])
    ]


def pytest_collection_finish() -> None:
    """Let the garbage collector work again, on what tests make: it leaves out all that is there now."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer | None]:
    """Yield a PostgreSQL server; None where there is none."""
    with postgres_server() as server:
        yield server


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Undo what a command that runs in this process does to the root logger: later tests read log records."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers
