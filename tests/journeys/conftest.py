from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.postgres import MISSING, PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def with_database(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Yield a configuration with a new database, once for each engine."""
    if request.param == "sqlite":
        yield {}
        return
    server: PostgresServer | None = request.getfixturevalue("postgres")
    if server is None:
        pytest.skip(MISSING)
    with server.database(migrated=False) as url:
        yield {"database": {"url": url}}


@pytest.fixture
def database(url: str) -> dict[str, Any]:
    """Return a configuration with a new PostgreSQL database."""
    return {"database": {"url": url}}
