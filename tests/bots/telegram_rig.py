"""A running Telegram adapter, connected to the fake Telegram server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio

from bots.config import TelegramConfig
from bots.telegram.adapter import TelegramAdapter
from bots.telegram.api import TelegramTimeouts
from bus.platform import CommandInfo, ConnectionState, Intake
from gateway.playground.telegram.server import TelegramServer
from tests.eventually import eventually
from tests.fakes.intake import RecordingIntake

COMMANDS = (
    CommandInfo(name="help", help="Show this help"),
    CommandInfo(name="new", help="Start a new conversation"),
)

FAST = TelegramTimeouts(
    poll_s=2,
    connect_s=2.0,
    answer_s=1.0,
    upload_s=4.0,
    retry_min_s=0.01,
    retry_max_s=0.05,
    failed_retry_s=0.05,
)
"""Short waits. Long polls end with an event, not by timing out."""


def config_for(
    telegram: TelegramServer, *, token: str | None = None, streaming: bool = False
) -> TelegramConfig:
    """Return a section with the server's address."""
    return TelegramConfig(
        enabled=True,
        streaming=streaming,
        bot_token=telegram.token if token is None else token,
        base_url=telegram.base_url,
        base_file_url=telegram.base_file_url,
    )


def adapter_for(
    telegram: TelegramServer, *, timeouts: TelegramTimeouts = FAST, streaming: bool = False
) -> TelegramAdapter:
    """Return an adapter that does not run."""
    return TelegramAdapter(config_for(telegram, streaming=streaming), COMMANDS, timeouts=timeouts)


@asynccontextmanager
async def running(adapter: TelegramAdapter, intake: Intake) -> AsyncIterator[None]:
    """Run an adapter. Cancel it when the block ends."""
    async with anyio.create_task_group() as tasks:
        await tasks.start(partial(_run, adapter, intake))
        yield
        tasks.cancel_scope.cancel()


async def _run(
    adapter: TelegramAdapter, intake: Intake, *, task_status: anyio.abc.TaskStatus[None]
) -> None:
    await adapter.run(intake, task_status=task_status)


@asynccontextmanager
async def talking(
    telegram: TelegramServer, *, timeouts: TelegramTimeouts = FAST, streaming: bool = False
) -> AsyncIterator[tuple[TelegramAdapter, RecordingIntake]]:
    """Run an adapter with a recording intake. Enter the block when it is connected."""
    adapter, recorder = (
        adapter_for(telegram, timeouts=timeouts, streaming=streaming),
        RecordingIntake(),
    )
    async with running(adapter, recorder):
        await linked(adapter, ConnectionState.CONNECTED)
        yield adapter, recorder


async def linked(adapter: TelegramAdapter, link: ConnectionState) -> str:
    """Wait until the connection has a state. Return its detail."""
    await eventually(lambda: adapter.health().state is link)
    return adapter.health().detail
