"""Two `parley serve` on one PostgreSQL database: one works, the other one takes over when it ends or freezes."""

import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply
from tests.fakes.postgres import MISSING, PostgresServer
from tests.fakes.postgres_proxy import PostgresProxy
from tests.journeys.chat_users import PlatformServers
from tests.journeys.service import Service, serving, with_model

PLATFORMS = ("slack", "telegram", "feishu")
LOST_DATABASE = 75
LONG = " ".join(f"word{number}" for number in range(100))


@pytest.fixture
def database(postgres: PostgresServer | None) -> Iterator[dict[str, Any]]:
    if postgres is None:
        pytest.skip(MISSING)
    with postgres.database() as url:
        yield {"database": {"url": url}}


@asynccontextmanager
async def standing_by(folder: Path, config: Mapping[str, Any]) -> AsyncIterator[Service]:
    """Start a second service and wait until it stands by."""
    await anyio.Path(folder).mkdir()
    service = Service(folder, config)
    await service.launch()

    async def logged() -> str:
        return service.log.read_text()

    try:
        await service.until_alive()
        await eventually(logged, lambda text: "This process is a standby" in text, within_s=20)
        yield service
    finally:
        if service.running:
            with anyio.CancelScope(shield=True):
                await service.kill()


async def answers_go_on(platforms: PlatformServers) -> None:
    """Everybody writes again and is answered once; nothing else has appeared."""
    for user in platforms.users:
        await user.send(f"again from {user.name}")
    for user in platforms.users:
        await user.expect_messages(
            f"You said: hi from {user.name}", f"You said: again from {user.name}"
        )
        assert user.misplaced_messages() == []


async def test_the_standby_answers_what_a_killed_process_left(
    tmp_path: Path, database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), **database, "channels": platforms.channels}
        async with (
            serving(tmp_path, config, *PLATFORMS) as first,
            standing_by(tmp_path / "second", config) as second,
        ):
            model.reply(
                *[ModelReply(text="never to be finished", hang_after=2)] * len(platforms.users)
            )
            for user in platforms.users:
                await user.send(f"hi from {user.name}")
            await model.until(lambda m: len(m.requests) == len(platforms.users), within_s=15)
            await first.kill()
            await second.until_connected(*PLATFORMS)
            for user in platforms.users:
                await user.expect_messages(f"You said: hi from {user.name}")
            await answers_go_on(platforms)
            assert await second.stop() == 0
        assert platforms.violations == []


async def test_a_frozen_process_is_replaced_and_says_nothing_more(
    tmp_path: Path, database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), **database, "channels": platforms.channels}
        async with (
            serving(tmp_path, config, *PLATFORMS) as first,
            standing_by(tmp_path / "second", config) as second,
        ):
            model.reply(
                *[ModelReply(text="never to be finished", hang_after=2)] * len(platforms.users)
            )
            for user in platforms.users:
                await user.send(f"hi from {user.name}")
            await model.until(lambda m: len(m.requests) == len(platforms.users), within_s=15)
            first.send(signal.SIGSTOP)
            await second.until_connected(*PLATFORMS)
            for user in platforms.users:
                await user.expect_messages(f"You said: hi from {user.name}")
            first.send(signal.SIGCONT)
            assert await first.ended() == LOST_DATABASE
            assert "Another process took the database over" in first.log.read_text()
            await answers_go_on(platforms)


async def test_a_process_cut_off_from_the_database_is_replaced_and_says_nothing_more(
    tmp_path: Path, database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), **database, "channels": platforms.channels}
        with PostgresProxy(database["database"]["url"]) as proxy:
            cut_off = {**config, "database": {"url": proxy.url}}
            async with (
                serving(tmp_path, cut_off, *PLATFORMS) as first,
                standing_by(tmp_path / "second", config) as second,
            ):
                model.reply(*[ModelReply(text=LONG, token_delay_s=0.3)] * len(platforms.users))
                for user in platforms.users:
                    await user.send(f"hi from {user.name}")
                await model.until(lambda m: len(m.requests) == len(platforms.users), within_s=15)
                for user in platforms.users:
                    if user.name.startswith("feishu"):
                        await user.wait_for_message("word2")
                # The model goes on to answer the first process, whose cards exist.
                proxy.block()
                await second.until_connected(*PLATFORMS)
                for user in platforms.users:
                    await user.expect_messages(f"You said: hi from {user.name}")
                proxy.unblock()
                assert await first.ended() == LOST_DATABASE
                await answers_go_on(platforms)


async def test_the_standby_goes_on_with_the_turns_of_a_process_that_is_stopped(
    tmp_path: Path, database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {
            **with_model(model.base_url), **database,
            "channels": {**platforms.channels, "drain_s": 0.5},
        }  # fmt: skip
        async with (
            serving(tmp_path, config, *PLATFORMS) as first,
            standing_by(tmp_path / "second", config) as second,
        ):
            model.reply(
                *[ModelReply(text="never to be finished", hang_after=2)] * len(platforms.users)
            )
            for user in platforms.users:
                await user.send(f"hi from {user.name}")
            await model.until(lambda m: len(m.requests) == len(platforms.users), within_s=15)
            assert await first.stop() == 0
            await second.until_connected(*PLATFORMS)
            for user in platforms.users:
                await user.expect_messages(f"You said: hi from {user.name}")
                assert user.misplaced_messages() == []
            assert await second.stop() == 0
        assert platforms.violations == []


async def test_a_standby_can_be_stopped(tmp_path: Path, database: dict[str, Any]) -> None:
    async with serving(tmp_path, database):  # noqa: SIM117 - the first one outlives the second
        async with standing_by(tmp_path / "second", database) as second:
            assert await second.stop() == 0
