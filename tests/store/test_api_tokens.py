"""Named API tokens in the store, on both engines."""

import pytest

from store.api_tokens import PREFIX, ApiTokenStore, token_digest
from store.database import Database
from store.errors import RowConflict, RowNotFound


async def test_a_token_is_stored_as_a_hash_only(database: Database) -> None:
    tokens = ApiTokenStore(database, now=lambda: 100.0)
    value = await tokens.create("ci", "read", lifetime_s=50.0)
    assert value.startswith(PREFIX)
    assert len(value) > 40
    (row,) = await tokens.list_all()
    assert (row.name, row.scope) == ("ci", "read")
    assert (row.created_at, row.expires_at) == (100.0, 150.0)
    assert row.digest == token_digest(value)
    stored = await database.read("SELECT * FROM api_token", {})
    assert value not in str([dict(line) for line in stored])


async def test_names_are_unique_and_rotation_replaces_the_value(database: Database) -> None:
    tokens = ApiTokenStore(database)
    first = await tokens.create("ci", "operator")
    with pytest.raises(RowConflict):
        await tokens.create("ci", "admin")
    second = await tokens.rotate("ci")
    (row,) = await tokens.list_all()
    assert first != second
    assert (row.digest, row.scope) == (token_digest(second), "operator")
    assert row.expires_at is None


async def test_a_revoked_token_is_gone(database: Database) -> None:
    tokens = ApiTokenStore(database)
    await tokens.create("ci", "operator")
    await tokens.revoke("ci")
    assert await tokens.list_all() == []
    for action in (tokens.revoke, tokens.rotate):
        with pytest.raises(RowNotFound):
            await action("ci")
