"""All nodes of a database are replaced while people talk to them, and PostgreSQL restarts."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.fakes.model import FakeModelServer
from tests.fakes.model_switches import ModelSwitches
from tests.fakes.postgres import MISSING, PostgresServer
from tests.journeys.nodes import PLATFORMS, answers_go_on, slow_model, two_nodes, write_all
from tests.journeys.service import Service, serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

REPLACEMENTS = 3


@pytest.fixture
def server(postgres: PostgresServer | None) -> PostgresServer:
    if postgres is None or not postgres.control:
        pytest.skip(MISSING)
    return postgres


async def talk(user: ChatUser, asked: list[str], is_over: anyio.Event) -> None:
    """Keep writing, each time after the answer. Every message gets one answer, in order."""
    while not is_over.is_set():
        asked.append(f"{len(asked)} from {user.name}")
        await user.send(asked[-1])
        await user.expect_messages(*(f"You said: {text}" for text in asked), within_s=60)


async def begun(model: FakeModelServer) -> None:
    """Wait until another turn begins."""
    before = len(model.requests)
    await model.until(lambda m: len(m.requests) > before)


@asynccontextmanager
async def talking(platforms: PlatformServers) -> AsyncIterator[dict[str, list[str]]]:
    """Let everybody talk with the bot, and wait for the last answers at the end. Yield their messages by name."""
    is_over = anyio.Event()
    asked: dict[str, list[str]] = {user.name: [] for user in platforms.users}
    async with anyio.create_task_group() as tasks:
        for user in platforms.users:
            tasks.start_soon(talk, user, asked[user.name], is_over)
        yield asked
        is_over.set()


async def test_all_nodes_are_replaced_while_everybody_talks(
    tmp_path: Path, server: PostgresServer
) -> None:
    async with PlatformServers() as platforms, AsyncExitStack() as running:
        model = await running.enter_async_context(FakeModelServer(ModelSwitches(token_delay_s=0.1)))
        url = running.enter_context(server.database())
        config = {
            **with_model(model.base_url), "channels": platforms.channels, "database": {"url": url},
        }  # fmt: skip

        async def start(number: int) -> Service:
            folder = tmp_path / f"node {number}"
            await anyio.Path(folder).mkdir()
            return await running.enter_async_context(serving(folder, config, *PLATFORMS))

        old = await start(0)
        async with talking(platforms) as asked:
            for number in range(1, REPLACEMENTS + 1):
                new = await start(number)
                await begun(model)
                assert await old.stop() == 0
                old = new
        for user in platforms.users:
            assert user.bot_messages() == [f"You said: {text}" for text in asked[user.name]]
            assert user.misplaced_messages() == []
        assert await old.stop() == 0
        assert platforms.violations == []


async def test_both_nodes_go_on_after_a_restart_of_the_database(
    tmp_path: Path, server: PostgresServer
) -> None:
    async with PlatformServers() as platforms, slow_model() as model:
        with server.database() as url:
            config = {
                **with_model(model.base_url), "channels": platforms.channels, "database": {"url": url},
            }  # fmt: skip
            async with two_nodes(tmp_path, config) as nodes:
                await write_all(platforms, model)
                await anyio.to_thread.run_sync(server.restart)
                await answers_go_on(platforms)
                for node in nodes:
                    assert await node.stop() == 0
        assert platforms.violations == []


async def test_a_node_that_dies_in_an_outage_of_the_database_is_replaced_after_it(
    tmp_path: Path, server: PostgresServer
) -> None:
    async with PlatformServers() as platforms, slow_model() as model:
        with server.database() as url:
            config = {
                **with_model(model.base_url), "channels": platforms.channels, "database": {"url": url},
            }  # fmt: skip
            async with two_nodes(tmp_path, config) as (first, second):
                await write_all(platforms, model)
                await anyio.to_thread.run_sync(server.stop)
                try:
                    await first.kill()
                finally:
                    await anyio.to_thread.run_sync(server.start)
                await answers_go_on(platforms)
                assert await second.stop() == 0
        assert platforms.violations == []
