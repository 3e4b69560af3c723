"""A Feishu adapter on the fake platform, with an intake that records what it receives."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from bots.config import FeishuConfig
from bots.feishu.adapter import FeishuAdapter
from bots.feishu.timeouts import FeishuTimeouts
from bus.messages import (
    ReplyTarget,
)
from bus.platform import CommandInfo, ConnectionState
from bus.retry import Backoff
from gateway.playground.feishu.server import FakeFeishu, FeishuMessage
from tests.eventually import eventually
from tests.fakes.intake import RecordingIntake

COMMANDS = [CommandInfo(name=name, help=name) for name in ("help", "new", "models")]

QUICK = FeishuTimeouts(
    call_s=5,
    upload_s=5,
    connect_s=5,
    lookup_s=5,
    backoff=Backoff(first_s=0.02, cap_s=0.05),
    failed_retry_s=0.05,
    close_s=1,
)


def adapter_for(
    feishu: FakeFeishu, *, timeouts: FeishuTimeouts = QUICK, **settings: object
) -> FeishuAdapter:
    """Return an adapter that is configured for the fake."""
    config = FeishuConfig.model_validate(feishu.settings | settings)
    return FeishuAdapter(config, commands=COMMANDS, timeouts=timeouts)


def place_of(message: FeishuMessage) -> ReplyTarget:
    """Return where the answer to a message goes."""
    return ReplyTarget(chat=message.chat, thread=message.thread, reply_to=message.id)


@asynccontextmanager
async def running(
    adapter: FeishuAdapter,
    intake: RecordingIntake,
    *,
    link: ConnectionState = ConnectionState.CONNECTED,
) -> AsyncIterator[None]:
    """Run the adapter until the block ends. Enter the block when its connection has the given state."""
    async with anyio.create_task_group() as tasks:

        async def run(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            await adapter.run(intake, task_status=task_status)

        await tasks.start(run)
        await eventually(lambda: adapter.health().state is link)
        yield
        tasks.cancel_scope.cancel()
