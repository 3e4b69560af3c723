from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.postgres import MISSING, PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def with_database(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Yield the configuration of either engine, a new database each."""
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
    """Return the configuration of PostgreSQL, a new database."""
    return {"database": {"url": url}}
