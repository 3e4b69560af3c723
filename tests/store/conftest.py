from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from store.config import StoreConfig
from store.database import Database
from tests.fakes.postgres import MISSING, PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def store_config(request: pytest.FixtureRequest) -> Iterator[StoreConfig]:
    """Yield the `database` section of either engine."""
    if request.param == "sqlite":
        yield StoreConfig()
        return
    server: PostgresServer | None = request.getfixturevalue("postgres")
    if server is None:
        pytest.skip(MISSING)
    with server.database() as url:
        yield StoreConfig(url=url)


@pytest.fixture
async def database(store_config: StoreConfig, tmp_path: Path) -> AsyncIterator[Database]:
    """Yield an open database. (It holds no task group, so a fixture may hold it.)"""
    async with Database.open(store_config, tmp_path) as opened:
        yield opened
