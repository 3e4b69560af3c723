import pytest

from store.config import StoreConfig


@pytest.fixture
def store(url: str) -> StoreConfig:
    """Return the `database` section of several nodes, which share PostgreSQL."""
    return StoreConfig(url=url)
