"""PostgreSQL stops while the service runs, and starts again: nothing is lost, and no administrator has to act."""

from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import pytest

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer
from tests.fakes.model_switches import ModelSwitches
from tests.fakes.postgres import MISSING, PostgresServer
from tests.journeys.service import serving, with_model
from tests.people.platforms import PlatformServers


async def test_messages_before_and_during_an_outage_are_answered_after_it(
    tmp_path: Path, postgres: PostgresServer | None
) -> None:
    if postgres is None or not postgres.control:
        pytest.skip(MISSING)
    async with (
        PlatformServers() as platforms,
        FakeModelServer(ModelSwitches(token_delay_s=0.5)) as model,
    ):
        users = [user for user in platforms.users if user.name.startswith("telegram")]
        channels = {"telegram": platforms.channels["telegram"]}
        with postgres.database() as url:
            config = {
                **with_model(model.base_url), "channels": channels, "database": {"url": url},
            }  # fmt: skip
            async with serving(tmp_path, config, "telegram") as service:
                for user in users:
                    await user.send("before")
                await model.until(lambda m: len(m.requests) == len(users))
                await anyio.to_thread.run_sync(postgres.stop)
                try:
                    for user in users:
                        await user.send("during")
                    await eventually(lambda: _readiness(service.url), lambda status: status == 503)
                    assert service.running
                finally:
                    await anyio.to_thread.run_sync(postgres.start)
                await eventually(lambda: _readiness(service.url), lambda status: status == 200)
                for user in users:
                    await user.send("after")
                for user in users:
                    await user.expect_messages(
                        "You said: before", "You said: during", "You said: after"
                    )
                    assert user.misplaced_messages() == []
                assert await service.stop() == 0
        assert platforms.violations == []


async def _readiness(url: str) -> int:
    async with httpx.AsyncClient(base_url=url, timeout=5) as client:
        return (await client.get("/health/ready")).status_code
