"""The TTL of threads, on both engines: its start, expiry and restart."""

import pytest

from store.database import Database
from store.errors import RowNotFound
from store.threads import ThreadExpiry, ThreadStore


async def test_a_ttl_that_is_set_begins_then(database: Database) -> None:
    threads = ThreadStore(database)
    await threads.create("t", {}, now=1.0)
    changed = await threads.set_ttl(
        "t", ThreadExpiry(minutes=2.5, strategy="keep_latest"), now=100.0
    )
    assert changed.ttl == ThreadExpiry(minutes=2.5, strategy="keep_latest", expires_at=250.0)
    assert (changed.created_at, changed.updated_at) == (1.0, 100.0)
    assert await threads.get("t") == changed
    shorter = await threads.set_ttl("t", ThreadExpiry(minutes=1), now=110.0)
    assert shorter.ttl == ThreadExpiry(minutes=1, expires_at=170.0)
    with pytest.raises(RowNotFound, match="Thread with ID x not found"):
        await threads.set_ttl("x", ThreadExpiry(minutes=1), now=1.0)


async def test_a_ttl_that_is_restarted_expires_as_much_later(database: Database) -> None:
    threads = ThreadStore(database)
    for name, minutes in (("a", 1), ("b", 2)):
        await threads.create(name, {}, now=0.0, ttl=ThreadExpiry(minutes=minutes))
    await threads.create("without", {}, now=0.0)

    async def expired(now: float) -> list[str]:
        return [thread.thread_id for thread in await threads.list_expired(now=now)]

    assert await expired(59.9) == []
    assert await expired(120.0) == ["a", "b"]
    before = await threads.get("a")
    await threads.restart_ttl("a", now=120.0)
    assert await expired(120.0) == ["b"]
    assert await expired(180.0) == ["b", "a"]
    after = await threads.get("a")
    assert after.ttl == ThreadExpiry(minutes=1, expires_at=180.0)
    assert after.updated_at == before.updated_at, "the thread was not changed"
    await threads.restart_ttl("without", now=120.0)
    assert (await threads.get("without")).ttl is None
