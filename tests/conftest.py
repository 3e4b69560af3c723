"""Fixtures for the whole suite."""

import gc
import logging
from collections.abc import Iterator

import pytest

from tests.fakes.postgres import PostgresServer, postgres_server

gc.disable()  # imports leave almost no garbage, and looking for it takes half of the time of the collection


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
