from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from store.config import StoreConfig
from store.database import Database


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    """Yield an open journal. (The database holds no task group, so a fixture may hold it.)"""
    async with Database.open(StoreConfig(), tmp_path) as opened:
        yield opened
