from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from store.checkpoints import CheckpointSaver, open_checkpointer
from store.config import StoreConfig
from store.database import Database
from tests.fakes.migrated import place_database
from tests.fakes.postgres import MISSING, PostgresServer

SaverOpener = Callable[[], AbstractAsyncContextManager[CheckpointSaver]]


@pytest.fixture
def server(postgres: PostgresServer | None) -> PostgresServer:
    """Return a PostgreSQL server."""
    if postgres is None:
        pytest.skip(MISSING)
    return postgres


@pytest.fixture(params=["sqlite", "postgres"])
def store_config(request: pytest.FixtureRequest) -> Iterator[StoreConfig]:
    """Yield the `database` section of either engine."""
    if request.param == "sqlite":
        yield StoreConfig()
        return
    yield StoreConfig(url=request.getfixturevalue("url"))


@pytest.fixture
async def database(store_config: StoreConfig, tmp_path: Path) -> AsyncIterator[Database]:
    """Yield an open database. A fixture may do this because the database holds no task group."""
    if store_config.url == StoreConfig().url:
        place_database(tmp_path)
    async with Database.open(store_config, tmp_path) as opened:
        yield opened


@pytest.fixture
def open_saver(store_config: StoreConfig, tmp_path: Path) -> SaverOpener:
    """Return a function that opens this test's checkpoints, as a restarted process does."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[CheckpointSaver]:
        async with (
            Database.open(store_config, tmp_path) as database,
            open_checkpointer(tmp_path, database) as saver,
        ):
            yield saver

    return opened
