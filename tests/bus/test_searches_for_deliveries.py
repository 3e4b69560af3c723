"""Searches for deliveries on PostgreSQL, where nodes share the work."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx

from bus.outbound.worker import DeliveryWorker
from bus.runs.remote_files import RemoteFiles
from store.config import StoreConfig
from store.database import Database
from store.outbox import NEXT_OPEN, OutboxStore
from tests.bus.test_delivery_worker import KEY, text
from tests.fakes.database import LateDatabase
from tests.fakes.platform import FakePlatform


@asynccontextmanager
async def pump(database: Database, platform: FakePlatform) -> AsyncIterator[DeliveryWorker]:
    async with httpx.AsyncClient(base_url="http://127.0.0.1:9/api/") as gateway:
        adapters = {platform.name: platform}
        delivery = DeliveryWorker(adapters, OutboxStore(database), RemoteFiles(gateway))
        async with anyio.create_task_group() as tasks:
            await tasks.start(delivery.run)
            yield delivery
            tasks.cancel_scope.cancel()


async def test_a_delivery_that_is_sent_while_it_is_found_makes_nobody_look_at_older_ones(
    url: str, tmp_path: Path
) -> None:
    async with Database.open(StoreConfig(url=url), tmp_path) as opened:
        database, platform = LateDatabase(opened), FakePlatform()
        async with pump(database, platform) as delivery:
            await delivery.enqueue(KEY, [text("k1", "first")])
            await delivery.wait_idle()
            [second] = await OutboxStore(database).enqueue([text("k2", "second")])
            async with anyio.create_task_group() as tasks:
                database.held = "first_id"
                tasks.start_soon(delivery.send_own)
                await database.committed.wait()
                delivery.notify(KEY)
                await delivery.wait_idle()
                database.reads.clear()
                database.goes_on.set()
            await delivery.enqueue(KEY, [text("k3", "third")])
            await delivery.wait_idle()
            assert [shown.text for shown in platform.shown] == ["first", "second", "third"]
            looks = [params for sql, params in database.reads if sql == NEXT_OPEN]
            assert looks
            assert all(params["from_id"] >= second.id for params in looks)  # type: ignore[operator]
